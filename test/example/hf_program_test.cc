// Folders of Hugging Face's in the programs: they train from one as from the .bin of the same weights, whole and in
// stages; export_hf and export_llmc bring every byte back.

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

const std::string kReference = ReferenceFolders()[0];

struct Weights {
    std::string program;
    std::string bin;
    std::string tokens;
};
const std::vector<Weights> kWeights = {
    {.program = "gpt2", .bin = kReference + "/gpt2_tiny.bin", .tokens = kReference + "/text_u16.bin"},
    {.program = "gpt2", .bin = kReference + "/gpt2_tiny_bf16.bin", .tokens = kReference + "/text_u16.bin"},
    {.program = "llama3", .bin = kReference + "/llama_tiny.bin", .tokens = kReference + "/text_u32.bin"},
    {.program = "llama3", .bin = kReference + "/llama_tiny_bf16.bin", .tokens = kReference + "/text_u32.bin"},
};

void Succeed(const std::string& program, const std::vector<std::string>& words) {
    const ProgramResult result = RunProgram(program, words);
    ASSERT_EQ(result.exit_code, 0) << program << ": " << result.err;
}

void ExpectRefusal(const std::string& program, const std::vector<std::string>& words,
                   const std::vector<std::string>& parts) {
    const ProgramResult result = RunProgram(program, words);
    EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    for (const std::string& part : parts) {
        EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
    }
}

class HfProgramTest : public testing::Test {
 protected:
    /// Loss and gradient norm of each of three steps.
    std::vector<double> Train(const Weights& weights, const std::string& flag, const std::string& path, int num_ranks) {
        const std::string metrics = folder_.File("metrics.jsonl");
        std::filesystem::remove(metrics);
        Succeed(weights.program, {flag,
                                  path,
                                  "--input_bin",
                                  weights.tokens,
                                  "--batch_size",
                                  "2",
                                  "--sequence_length",
                                  "16",
                                  "--total_batch_size",
                                  "64",
                                  "--num_iteration",
                                  "3",
                                  "--learning_rate",
                                  "0.01",
                                  "--metrics_file",
                                  metrics,
                                  "--pipeline_parallel",
                                  std::to_string(num_ranks),
                                  "--device",
                                  "cpu"});
        std::vector<double> numbers;
        std::istringstream lines(ReadTextFile(metrics));
        for (std::string line; std::getline(lines, line);) {
            const nlohmann::json step = nlohmann::json::parse(line);
            numbers.push_back(step.at("loss"));
            numbers.push_back(step.at("grad_norm"));
        }
        return numbers;
    }

    TemporaryFolder folder_;
};

TEST_F(HfProgramTest, TrainingFromAFolderIsTrainingFromTheBin) {
    for (const Weights& weights : kWeights) {
        SCOPED_TRACE(weights.bin);
        const std::string exported = folder_.File(std::filesystem::path(weights.bin).stem().string());
        Succeed("export_hf", {"--llmc_filepath", weights.bin, "--output", exported, "--max_shard_bytes", "20000"});
        const std::vector<double> wanted = Train(weights, "--llmc_filepath", weights.bin, 1);
        ASSERT_EQ(wanted.size(), 6u);
        for (const int num_ranks : {1, 3}) {
            EXPECT_EQ(Train(weights, "--hf_dir", exported, num_ranks), wanted) << num_ranks << " ranks";
        }
    }
}

TEST_F(HfProgramTest, EveryWayThroughTheFormatsKeepsTheBytes) {
    for (const Weights& weights : kWeights) {
        SCOPED_TRACE(weights.bin);
        const std::string name = std::filesystem::path(weights.bin).stem().string();
        const std::string first = folder_.File(name + ".first");
        const std::string second = folder_.File(name + ".second");
        const std::string bin = folder_.File(name + ".bin");
        Succeed("export_hf", {"--llmc_filepath", weights.bin, "--output", first});
        Succeed("export_llmc", {"--hf_dir", first, "--output", bin});
        EXPECT_TRUE(ReadTextFile(bin) == ReadTextFile(weights.bin));
        Succeed("export_hf", {"--hf_dir", first, "--output", second});
        for (const std::string file : {"/config.json", "/model.safetensors"}) {
            EXPECT_TRUE(ReadTextFile(second + file) == ReadTextFile(first + file)) << file;
        }
        const std::string again = folder_.File(name + ".again.bin");
        Succeed("export_llmc", {"--llmc_filepath", weights.bin, "--output", again});
        EXPECT_TRUE(ReadTextFile(again) == ReadTextFile(weights.bin));
    }
}

// bugs.csv O76
TEST_F(HfProgramTest, WhatWasTrainedIsExportedAndReadAgain) {
    for (const Weights& weights : {kWeights[0], kWeights[2]}) {
        SCOPED_TRACE(weights.program);
        const std::string run = folder_.File(weights.program + ".run");
        Succeed(weights.program, {"--llmc_filepath", weights.bin, "--input_bin", weights.tokens, "--num_iteration", "2",
                                  "--batch_size", "2", "--sequence_length", "16", "--learning_rate", "0.01", "--save",
                                  run, "--pipeline_parallel", "3", "--device", "cpu"});
        const std::string folder = folder_.File(weights.program + ".hf");
        const std::string bin = folder_.File(weights.program + ".bin");
        const std::string again = folder_.File(weights.program + ".again.bin");
        Succeed("export_hf", {"--load", run, "--output", folder});
        Succeed("export_llmc", {"--load", run, "--output", bin});
        Succeed("export_llmc", {"--hf_dir", folder, "--output", again});
        EXPECT_TRUE(ReadTextFile(again) == ReadTextFile(bin));
        EXPECT_EQ(std::filesystem::file_size(bin), std::filesystem::file_size(weights.bin));
        EXPECT_FALSE(ReadTextFile(bin) == ReadTextFile(weights.bin)) << "it did not train";
        const std::vector<double> numbers = Train(weights, "--llmc_filepath", bin, 1);
        ASSERT_EQ(numbers.size(), 6u);
        EXPECT_EQ(Train(weights, "--hf_dir", folder, 2), numbers);
        EXPECT_EQ(Train(weights, "--hf_dir", run + "/step_00000002", 1), numbers);
    }
}

TEST_F(HfProgramTest, TheDtypeIsThatOfTheWeightsUnlessAnotherOneIsAskedFor) {
    const std::string narrow = folder_.File("narrow.bin");
    Succeed("export_llmc",
            {"--llmc_filepath", kReference + "/gpt2_tiny.bin", "--output", narrow, "--dtype", "bfloat16"});
    EXPECT_TRUE(ReadTextFile(narrow) == ReadTextFile(kReference + "/gpt2_tiny_bf16.bin"));
    const std::string wide = folder_.File("wide");
    const std::string back = folder_.File("back.bin");
    Succeed("export_hf", {"--llmc_filepath", narrow, "--output", wide, "--dtype", "float32"});
    Succeed("export_llmc", {"--hf_dir", wide, "--output", back, "--dtype", "bfloat16"});
    EXPECT_TRUE(ReadTextFile(back) == ReadTextFile(narrow));
    EXPECT_GT(std::filesystem::file_size(wide + "/model.safetensors"), std::filesystem::file_size(narrow));
}

// A header says that there is a scaling, not how much: the user's number goes into the folder, and is asked for again.
TEST_F(HfProgramTest, TheScalingOfRotaryFrequenciesIsKept) {
    std::string bytes = ReadTextFile(kReference + "/llama_tiny.bin");
    bytes[12 * sizeof(int32_t)] = 1;
    const std::string bin = folder_.File("scaled.bin");
    WriteTextFile(bin, bytes);
    const std::string folder = folder_.File("scaled");
    Succeed("export_hf", {"--llmc_filepath", bin, "--output", folder, "--rope_scaling_factor", "32"});
    EXPECT_EQ(nlohmann::json::parse(ReadTextFile(folder + "/config.json")).at("rope_scaling").at("factor"), 32.0);
    const std::string again = folder_.File("again.bin");
    const ProgramResult result = RunProgram("export_llmc", {"--hf_dir", folder, "--output", again});
    EXPECT_NE(result.out.find("--rope_scaling_factor 32"), std::string::npos) << result.out;
    EXPECT_TRUE(ReadTextFile(again) == bytes);
}

TEST_F(HfProgramTest, OneModelIsReadAndOnePlaceIsWritten) {
    const std::string bin = kReference + "/gpt2_tiny.bin";
    const std::string out = folder_.File("out");
    for (const std::string program : {"export_hf", "export_llmc"}) {
        ExpectRefusal(program, {"--output", out}, {"--llmc_filepath, --hf_dir, --load", "one of them"});
        ExpectRefusal(program, {"--output", out, "--llmc_filepath", bin, "--hf_dir", out}, {"exclude each other"});
        ExpectRefusal(program, {"--llmc_filepath", bin}, {"--output"});
        ExpectRefusal(program, {"--llmc_filepath", bin, "--output", out, "--dtype", "float16"}, {"--dtype", "float16"});
        ExpectRefusal(program, {"--llmc_filepath", folder_.File("no"), "--output", out}, {"no", "cannot open"});
        ExpectRefusal(program, {"--hf_dir", folder_.File(""), "--output", out}, {"config.json", "cannot open"});
        ExpectRefusal(program, {"--bogus", "1"}, {"--bogus", "unknown flag"});
        EXPECT_FALSE(std::filesystem::exists(out));
        const ProgramResult help = RunProgram(program, {"--help"});
        EXPECT_EQ(help.exit_code, 0);
        EXPECT_NE(help.out.find("--rope_scaling_factor"), std::string::npos) << help.out;
    }
    ExpectRefusal("export_hf", {"--llmc_filepath", bin, "--output", out, "--max_shard_bytes", "0"},
                  {"--max_shard_bytes", "at least 1"});
}

// Of a weight the size is as it was; only its checksum tells.
TEST_F(HfProgramTest, ACheckpointWithAnotherBitIsRefused) {
    const std::string run = folder_.File("run");
    Succeed("gpt2", {"--model", "tiny", "--input_bin", kReference + "/text_u16.bin", "--num_iteration", "1", "--save",
                     run, "--device", "cpu"});
    const std::string out = folder_.File("out");
    Succeed("export_hf", {"--load", run, "--output", out});
    std::filesystem::remove_all(out);
    const std::string weights = run + "/step_00000001/model-00003-of-00010.safetensors";
    std::string bytes = ReadTextFile(weights);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    WriteTextFile(weights, bytes);
    ExpectRefusal("export_hf", {"--load", run, "--output", out}, {weights, "checksum"});
    ExpectRefusal("export_llmc", {"--load", run, "--output", out}, {weights, "checksum"});
    EXPECT_FALSE(std::filesystem::exists(out));
    const ProgramResult text = RunProgram("generate", {"--load", run, "--prompt", "A", "--device", "cpu"});
    EXPECT_EQ(text.exit_code, 2);
    EXPECT_NE(text.err.find(weights), std::string::npos) << text.err;
    EXPECT_EQ(text.out, "");
}

TEST_F(HfProgramTest, AFolderOfTheOtherFamilyIsRefused) {
    const std::string folder = folder_.File("gpt2");
    Succeed("export_hf", {"--llmc_filepath", kReference + "/gpt2_tiny.bin", "--output", folder});
    ExpectRefusal("llama3", {"--hf_dir", folder, "--input_bin", kReference + "/text_u32.bin", "--device", "cpu"},
                  {folder + "/config.json", "model_type", "gpt2", "llama"});
}

}  // namespace
}  // namespace infini_train::test
