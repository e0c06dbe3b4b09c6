// The programs on one GPU: ranks as threads over the copy transport and as processes over NCCL learn, to the bit, what
// one rank does.

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/cuda_compare.h"
#include "test/support/run_program.h"
#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

constexpr unsigned kLimitS = 110;  // eight processes start NCCL on one GPU

/// A text of so many bytes, in which neighbours have something to do with each other.
std::string WriteText(const TemporaryFolder& folder, size_t num_bytes) {
    std::string text(num_bytes, ' ');
    uint32_t state = 1;
    for (size_t i = 0; i < num_bytes; ++i) {
        state = state * 1664525u + 1013904223u;
        text[i] = static_cast<char>('a' + (i % 7 + (state >> 24) % 4));
    }
    WriteTextFile(folder.File("text.txt"), text);
    return folder.File("text.txt");
}

std::vector<std::string> TrainingFlags(const TemporaryFolder& folder, const std::string& dtype) {
    // A message is 64 x 160 x 128 elements: over 4 MiB in float32, which NCCL does not hide in a buffer.
    return {"--model",
            "tiny",
            "--input_bin",
            WriteText(folder, 210000),
            "--device",
            "cuda",
            "--dtype",
            dtype,
            "--batch_size",
            "64",
            "--sequence_length",
            "160",
            "--total_batch_size",
            "40960",
            "--num_iteration",
            "5",
            "--grad_clip",
            "0.5",
            "--metrics_file",
            folder.File("metrics.jsonl")};
}

/// The numbers of all steps and validations, as printed; "" for a run that failed.
std::string Train(const std::string& program, std::vector<std::string> launcher, const std::string& dtype,
                  const std::vector<std::string>& more) {
    const TemporaryFolder folder;
    std::vector<std::string> words = TrainingFlags(folder, dtype);
    words.insert(words.end(), more.begin(), more.end());
    std::string started = program;
    if (!launcher.empty()) {
        started = launcher.front();
        launcher.erase(launcher.begin());
        launcher.push_back(std::string(INFINI_BINARY_DIR) + "/" + program);
        words.insert(words.begin(), launcher.begin(), launcher.end());
    }
    const ProgramResult result = RunProgram(started, words, kLimitS);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result.exit_code == 0 ? NumbersOf(folder.File("metrics.jsonl")) : "";
}

int64_t NumLines(const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
}

using Case = std::tuple<const char*, const char*>;  // program, dtype
class CudaPrograms : public testing::TestWithParam<Case> {
 protected:
    void SetUp() override {
        INFINI_SKIP_WITHOUT_CUDA();
        one_rank_ = Train(program_, {}, dtype_, {});
        ASSERT_EQ(NumLines(one_rank_), 5);
    }

    void ExpectTheSameOverNccl(const char* num_ranks) {
        const std::string run_local = std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh";
        EXPECT_EQ(Train(program_, {run_local, "-n", num_ranks, "--"}, dtype_,
                        {"--pipeline_parallel", num_ranks, "--pipeline_schedule", "1f1b", "--timeout_s", "60"}),
                  one_rank_)
            << num_ranks << " ranks";
    }

    std::string program_ = std::get<0>(GetParam());
    std::string dtype_ = std::get<1>(GetParam());
    std::string one_rank_;
};

TEST_P(CudaPrograms, LearnTheSameWithRankThreads) {
    for (const char* num_ranks : {"2", "4", "8"}) {
        for (const char* schedule : {"gpipe", "1f1b"}) {
            EXPECT_EQ(Train(program_, {}, dtype_,
                            {"--pipeline_parallel", num_ranks, "--pipeline_schedule", schedule, "--transport", "copy"}),
                      one_rank_)
                << num_ranks << " ranks, " << schedule;
        }
    }
    EXPECT_EQ(Train(program_, {}, dtype_,
                    {"--pipeline_parallel", "2", "--pipeline_schedule", "interleaved", "--transport", "copy"}),
              one_rank_);
}

TEST_P(CudaPrograms, LearnTheSameInARecordedStep) {
    EXPECT_EQ(Train(program_, {}, dtype_, {"--cuda_graph"}), one_rank_);
}

TEST_P(CudaPrograms, ValidateAndSampleBetweenTheReplaysOfARecordedStep) {
    const TemporaryFolder folder;
    const std::vector<std::string> between = {"--input_val_bin",    WriteText(folder, 50000),
                                              "--val_batches",      "3",
                                              "--val_loss_every",   "2",
                                              "--sample_every",     "1",
                                              "--sequence_length",  "96",
                                              "--total_batch_size", "36864",
                                              "--text_length",      "9"};
    const std::string launched = Train(program_, {}, dtype_, between);
    ASSERT_EQ(NumLines(launched), 8);
    std::vector<std::string> recorded_flags = between;
    recorded_flags.push_back("--cuda_graph");
    EXPECT_EQ(Train(program_, {}, dtype_, recorded_flags), launched);
}

TEST_P(CudaPrograms, LearnTheSameWithTwoProcessesOverNccl) {
    ExpectTheSameOverNccl("2");
}

TEST_P(CudaPrograms, LearnTheSameWithFourProcessesOverNccl) {
    ExpectTheSameOverNccl("4");
}

TEST_P(CudaPrograms, LearnTheSameWithEightProcessesOverNccl) {
    ExpectTheSameOverNccl("8");
}

INSTANTIATE_TEST_SUITE_P(Models, CudaPrograms,
                         testing::Combine(testing::Values("gpt2", "llama3"), testing::Values("float32", "bfloat16")),
                         [](const testing::TestParamInfo<Case>& info) {
                             return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

// Its backward adds in an order of its own: at 1024 tokens the bits tell it from the default. bfloat16 alone has it.
TEST(CudaPrograms, TakeTheAttentionThatIsNotDeterministicWhereItIsAllowed) {
    INFINI_SKIP_WITHOUT_CUDA();
    for (const auto& [program, model] : {std::pair("gpt2", "d12"), std::pair("llama3", "1b")}) {
        const auto train = [&, program = program, model = model](const std::vector<std::string>& more) {
            std::vector<std::string> words = {"--model",      model, "--sequence_length",  "1024",
                                              "--batch_size", "4",   "--total_batch_size", "4096"};
            words.insert(words.end(), more.begin(), more.end());
            return Train(program, {}, "bfloat16", words);
        };
        const std::string deterministic = train({});
        ASSERT_EQ(NumLines(deterministic), 5);
        EXPECT_EQ(train({}), deterministic) << program;
        EXPECT_NE(train({"--nondeterministic"}), deterministic) << program;
    }
}

TEST(CudaPrograms, GenerateTheTextThatACpuDoes) {
    INFINI_SKIP_WITHOUT_CUDA();
    for (const char* file : {"gpt2_tiny.bin", "llama_tiny.bin"}) {
        const auto generate = [&](const char* device, const std::vector<std::string>& more) {
            std::vector<std::string> words = {
                "--llmc_filepath", std::string(INFINI_SOURCE_DIR) + "/test/reference/" + file,
                "--prompt",        "what",
                "--text_length",   "20",
                "--temperature",   "0",
                "--device",        device};
            words.insert(words.end(), more.begin(), more.end());
            const ProgramResult result = RunProgram("generate", words, kLimitS);
            EXPECT_EQ(result.exit_code, 0) << result.err;
            return result.out;
        };
        const std::string on_cpu = generate("cpu", {});
        EXPECT_GT(on_cpu.size(), 20u);
        EXPECT_EQ(generate("cuda", {}), on_cpu) << file;
        EXPECT_EQ(generate("cuda", {"--nokv_cache"}), on_cpu) << file;
        EXPECT_EQ(generate("cuda", {"--pipeline_parallel", "2"}), on_cpu) << file;
    }
}

TEST(CudaPrograms, SayHowToStartProcessesWhenNcclCannotTakeThreads) {
    INFINI_SKIP_WITHOUT_CUDA();
    const std::string num_ranks = std::to_string(NumGpus() + 1);
    const TemporaryFolder folder;
    std::vector<std::string> words = TrainingFlags(folder, "float32");
    words.insert(words.end(), {"--nthread_per_process", num_ranks, "--transport", "nccl"});
    const ProgramResult result = RunProgram("gpt2", words);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_NE(result.err.find("scripts/run_local.sh -n " + num_ranks), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
}

TEST(CudaPrograms, SayInOneLineWhatMemoryIsMissing) {
    INFINI_SKIP_WITHOUT_CUDA();
    const TemporaryFolder folder;
    // Logits of 800 GiB.
    const ProgramResult result =
        RunProgram("gpt2", {"--model", "d12", "--input_bin", WriteText(folder, 4200000), "--device", "cuda",
                            "--batch_size", "4096", "--sequence_length", "1024"});
    EXPECT_EQ(result.exit_code, 1) << result.out;
    EXPECT_NE(result.err.find("predicted for this rank; try a smaller --batch_size"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
}

}  // namespace
}  // namespace infini_train::test
