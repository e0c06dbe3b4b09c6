// What a user can get wrong: one line on stderr that names it, exit code 2, nothing written.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

const std::string kReference = std::string(INFINI_SOURCE_DIR) + "/test/reference/";

class BadInput : public testing::Test {
 protected:
    /// Runs the program on good input plus these words, and looks for each part in the one line.
    void ExpectRefusal(const std::vector<std::string>& words, const std::vector<std::string>& parts,
                       const std::string& program = "gpt2") {
        std::vector<std::string> all = {"--metrics_file", metrics_};
        all.insert(all.end(), words.begin(), words.end());
        const ProgramResult result = RunProgram(program, all);
        EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        for (const std::string& part : parts) {
            EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
        }
        EXPECT_FALSE(std::filesystem::exists(metrics_));
    }

    TemporaryFolder folder_;
    std::string metrics_ = folder_.File("metrics.jsonl");
    std::string weights_ = kReference + "gpt2_tiny.bin";
    std::string tokens_ = kReference + "text_u16.bin";
};

TEST_F(BadInput, UnknownFlagsAndValues) {
    ExpectRefusal({"--model", "tiny", "--bogus", "1"}, {"--bogus", "unknown flag"});
    ExpectRefusal({"--model", "tiny", "stray"}, {"stray"});
    ExpectRefusal({"--model", "tiny", "--batch_size", "four"}, {"--batch_size", "four", "int64"});
    ExpectRefusal({"--model", "tiny", "--batch_size", "0"}, {"--batch_size", "got 0", "at least 1"});
    ExpectRefusal({"--model", "tiny", "--input_bin"}, {"--input_bin", "no value"});
    ExpectRefusal({"--model", "huge", "--input_bin", tokens_}, {"--model", "huge", "d12"});
    ExpectRefusal({"--model", "tiny", "--optimizer", "adam"}, {"--optimizer", "adam", "adamw or sgd"});
    ExpectRefusal({"--model", "tiny", "--dtype", "fp16"}, {"--dtype", "fp16", "bfloat16"});
    ExpectRefusal({"--model", "tiny", "--device", "cuda"}, {"--device", "cuda"});
    ExpectRefusal({"--model", "tiny", "--lr_schedule", "step"}, {"--lr_schedule", "step", "cosine"});
    ExpectRefusal({"--model", "tiny", "--learning_rate", "nan"}, {"--learning_rate", "nan"});
    ExpectRefusal({"--model", "tiny", "--dropout", "1"}, {"--dropout", "less than 1"});
}

TEST_F(BadInput, ValuesThatAFloat32CannotHold) {
    ExpectRefusal({"--model", "tiny", "--dropout", "0.999999999999"}, {"--dropout", "less than 1"});
    ExpectRefusal({"--model", "tiny", "--beta2", "0.999999999999"}, {"--beta2", "less than 1"});
    ExpectRefusal({"--model", "tiny", "--learning_rate", "1e300"}, {"--learning_rate", "1e+300"});
    ExpectRefusal({"--model", "tiny", "--weight_decay", "1e300"}, {"--weight_decay", "1e+300"});
    ExpectRefusal({"--model", "tiny", "--eps", "0"}, {"--eps", "got 0"});
}

TEST_F(BadInput, WordsThatOnlyLookLikeFlags) {
    ExpectRefusal({"--model", "tiny", "--norecompute=true"}, {"--norecompute=true", "no value"});
    ExpectRefusal({"--model", "tiny", "--nomomentum"}, {"--nomomentum", "unknown flag"});
    ExpectRefusal({"--model", "tiny", "-"}, {"-: not a flag"});
    ExpectRefusal({"--model", "tiny", "--dtype", "a\nb"}, {"--dtype", "a b"});
    ExpectRefusal({"--model", "tiny", "--threads_per_rank", "100000"}, {"--threads_per_rank", "at most 1024"});
}

TEST_F(BadInput, ATextThatTheTokenizerCannotWrite) {
    ExpectRefusal({"--llmc_filepath", weights_, "--input_bin", folder_.File("missing.bin")}, {"missing.bin"});
    ExpectRefusal({"--model", "d12", "--input_bin", tokens_, "--sample_every", "1"},
                  {"--tokenizer byte", "50257", "257"});
}

// bugs.csv O03, O08
TEST_F(BadInput, PipelinesThatCannotBe) {
    const auto expect = [&](std::vector<std::string> words, const std::vector<std::string>& parts) {
        words.insert(words.begin(), {"--model", "tiny", "--input_bin", tokens_});
        ExpectRefusal(words, parts);
    };
    expect({"--pipeline_parallel", "9"}, {"--pipeline_parallel", "9 stages for 8 layers"});
    expect({"--pipeline_parallel", "0"}, {"--pipeline_parallel", "at least 1"});
    expect({"--pipeline_parallel", "4", "--nthread_per_process", "6"},
           {"--pipeline_parallel 4: ", "6 ranks: 1 process x --nthread_per_process 6", "a multiple of 4"});
    expect({"--pipeline_parallel", "2", "--virtual_pipeline_parallel", "2"},
           {"--pipeline_schedule gpipe", "--virtual_pipeline_parallel 2"});
    expect({"--pipeline_parallel", "2", "--virtual_pipeline_parallel", "5", "--pipeline_schedule", "interleaved"},
           {"10 stages for 8 layers"});
    expect({"--pipeline_parallel", "3", "--pipeline_layout", "3,3,1"}, {"--pipeline_layout", "sum 7", "sum 8"});
    expect({"--pipeline_schedule", "zigzag"}, {"--pipeline_schedule", "zigzag", "1f1b"});
    expect({"--pipeline_schedule", folder_.File("missing.json")}, {"missing.json"});
    expect({"--pipeline_parallel", "2", "--nthread_per_process", "4", "--total_batch_size", "256"},
           {"--total_batch_size", "4 x 64 x 2 = 512"});
    expect({"--timeline", "a.txt"}, {"--timeline", "a.txt", ".svg"});
    expect({"--timeline", metrics_ + ".svg", "--plan_json", metrics_ + ".svg"}, {"--timeline", "--plan_json"});
    expect({"--timeout_s", "0"}, {"--timeout_s"});
}

TEST_F(BadInput, FlagsThatDoNotGoTogether) {
    ExpectRefusal({"--input_bin", tokens_}, {"--model", "--llmc_filepath"});
    ExpectRefusal({"--model", "tiny", "--llmc_filepath", weights_, "--input_bin", tokens_}, {"--model", "excludes"});
    ExpectRefusal({"--model", "tiny"}, {"--input_bin", "tokenize"});
    ExpectRefusal({"--model", "tiny", "--num_iteration", "0"}, {"--num_iteration", "--prompt"});
    ExpectRefusal({"--model", "tiny", "--input_bin", tokens_, "--val_loss_every", "5"},
                  {"--val_loss_every", "--input_val_bin"});
}

TEST_F(BadInput, BatchesThatDoNotFit) {
    ExpectRefusal({"--model", "tiny", "--input_bin", tokens_, "--total_batch_size", "300"},
                  {"--total_batch_size", "300", "4 x 64 x 1 = 256"});
    ExpectRefusal({"--llmc_filepath", weights_, "--input_bin", tokens_, "--sequence_length", "33"},
                  {"--sequence_length", "33", "at most 32"});
    ExpectRefusal(
        {"--llmc_filepath", weights_, "--input_bin", tokens_, "--sequence_length", "32", "--batch_size", "1000"},
        {tokens_, "4000"});
}

TEST_F(BadInput, FilesThatAreMissingOrWrong) {
    const std::string missing = folder_.File("missing.bin");
    ExpectRefusal({"--llmc_filepath", missing, "--input_bin", tokens_}, {missing});
    ExpectRefusal({"--model", "tiny", "--input_bin", missing}, {missing});
    ExpectRefusal({"--llmc_filepath", tokens_, "--input_bin", tokens_}, {tokens_, "magic"});
    ExpectRefusal({"--model", "tiny", "--input_bin", weights_},
                  {weights_, "GPT-2 weights file", "wanted a token file"});
    ExpectRefusal({"--llmc_filepath", kReference + "llama_tiny.bin", "--input_bin", tokens_},
                  {"llama_tiny.bin", "magic"});
    ExpectRefusal({"--llmc_filepath", weights_, "--input_bin", tokens_}, {"gpt2_tiny.bin", "magic"}, "llama3");
    const std::string weights = ReadTextFile(weights_);
    const std::string bad = folder_.File("bad.bin");
    WriteTextFile(bad, weights.substr(0, weights.size() - 1));
    ExpectRefusal({"--llmc_filepath", bad, "--input_bin", tokens_}, {bad, "size"});
    WriteTextFile(bad, weights + "x");
    ExpectRefusal({"--llmc_filepath", bad, "--input_bin", tokens_}, {bad, "size"});
    const std::string tokens = ReadTextFile(tokens_);
    WriteTextFile(bad, tokens.substr(0, tokens.size() - 1));
    ExpectRefusal({"--model", "tiny", "--input_bin", bad}, {bad, "bytes", "9024"});
    WriteTextFile(bad, tokens + "x");
    ExpectRefusal({"--model", "tiny", "--input_bin", bad}, {bad, "bytes", "9024"});
    std::string outside = tokens;
    outside[1024 + 2 * 7] = '\xff';
    outside[1024 + 2 * 7 + 1] = '\xff';
    WriteTextFile(bad, outside);
    ExpectRefusal({"--llmc_filepath", weights_, "--input_bin", bad, "--sequence_length", "32"},
                  {bad, "7", "65535", "131"});
}

TEST_F(BadInput, AMetricsFileThatCannotBeWritten) {
    const ProgramResult result = RunProgram("gpt2", {"--model", "tiny", "--input_bin", tokens_, "--metrics_file",
                                                     folder_.File("no/such/folder/metrics.jsonl")});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("--metrics_file"), std::string::npos) << result.err;
}

TEST_F(BadInput, AnOutputWithoutAFolderIsRefusedBeforeTheTraining) {
    for (const std::string flag : {"--report", "--timeline", "--metrics_file"}) {
        const std::string name = flag == "--timeline" ? "a.svg" : "a";
        const ProgramResult result = RunProgram("gpt2", {"--model", "tiny", "--input_bin", tokens_, "--num_iteration",
                                                         "1", flag, folder_.File("none/" + name)});
        EXPECT_EQ(result.exit_code, 2) << flag;
        EXPECT_NE(result.err.find(flag), std::string::npos) << result.err;
        EXPECT_NE(result.err.find("there is no folder"), std::string::npos) << result.err;
        EXPECT_EQ(result.out.find("step "), std::string::npos) << result.out;
    }
}

TEST_F(BadInput, AFileMayLieInTheFolderOfCheckpointsThatTheRunMakes) {
    const ProgramResult result =
        RunProgram("gpt2", {"--model", "tiny", "--input_bin", tokens_, "--num_iteration", "1", "--save",
                            folder_.File("run"), "--metrics_file", folder_.File("run/metrics.jsonl")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(ReadTextFile(folder_.File("run/metrics.jsonl")).find("loss"), std::string::npos);
}

TEST_F(BadInput, AMetricsFileThatIsAnInputIsNotEmptied) {
    const std::string tokens = folder_.File("tokens.bin");
    WriteTextFile(tokens, ReadTextFile(tokens_));
    const ProgramResult result =
        RunProgram("gpt2", {"--model", "tiny", "--input_bin", tokens, "--metrics_file", tokens});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("also an input"), std::string::npos) << result.err;
    EXPECT_EQ(ReadTextFile(tokens), ReadTextFile(tokens_));
}

TEST_F(BadInput, APromptThatTheModelCannotRead) {
    ExpectRefusal({"--llmc_filepath", weights_, "--num_iteration", "0", "--prompt", "\xff"},
                  {"--prompt", "255", "131"});
}

TEST(Programs, HelpNamesEveryFlagAndExitsWithZero) {
    for (const char* program : {"gpt2", "llama3"}) {
        const ProgramResult result = RunProgram(program, {"--help"});
        EXPECT_EQ(result.exit_code, 0);
        for (const char* flag :
             {"--input_bin", "--model", "--grad_clip", "--metrics_file", "--prompt", "--threads_per_rank"}) {
            EXPECT_NE(result.out.find(flag), std::string::npos) << flag;
        }
    }
}

}  // namespace
}  // namespace infini_train::test
