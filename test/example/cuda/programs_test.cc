// The programs on one GPU: ranks as threads over the copy transport and as processes over NCCL learn, to the bit, what
// one rank does.

#include <csignal>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/cuda_compare.h"
#include "test/support/gpu_processes.h"
#include "test/support/gpu_training.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

using Case = std::tuple<const char*, const char*>;  // program, dtype
class CudaPrograms : public testing::TestWithParam<Case> {
 protected:
    void SetUp() override {
        INFINI_SKIP_WITHOUT_CUDA();
        one_rank_ = TrainOnGpus(program_, {}, dtype_, {});
        ASSERT_EQ(NumLines(one_rank_), 5);
    }

    void ExpectTheSameOverNccl(int num_ranks) {
        EXPECT_EQ(TrainOnGpus(program_, RunLocal(num_ranks), dtype_,
                              {"--pipeline_parallel", std::to_string(num_ranks), "--pipeline_schedule", "1f1b",
                               "--timeout_s", "60"}),
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
            EXPECT_EQ(
                TrainOnGpus(program_, {}, dtype_,
                            {"--pipeline_parallel", num_ranks, "--pipeline_schedule", schedule, "--transport", "copy"}),
                one_rank_)
                << num_ranks << " ranks, " << schedule;
        }
    }
    EXPECT_EQ(TrainOnGpus(program_, {}, dtype_,
                          {"--pipeline_parallel", "2", "--pipeline_schedule", "interleaved", "--transport", "copy"}),
              one_rank_);
}

TEST_P(CudaPrograms, LearnTheSameInARecordedStep) {
    EXPECT_EQ(TrainOnGpus(program_, {}, dtype_, {"--cuda_graph"}), one_rank_);
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
    const std::string launched = TrainOnGpus(program_, {}, dtype_, between);
    ASSERT_EQ(NumLines(launched), 8);
    std::vector<std::string> recorded_flags = between;
    recorded_flags.push_back("--cuda_graph");
    EXPECT_EQ(TrainOnGpus(program_, {}, dtype_, recorded_flags), launched);
}

TEST_P(CudaPrograms, LearnTheSameWithTwoProcessesOverNccl) {
    ExpectTheSameOverNccl(2);
}

TEST_P(CudaPrograms, LearnTheSameWithFourProcessesOverNccl) {
    ExpectTheSameOverNccl(4);
}

TEST_P(CudaPrograms, LearnTheSameWithEightProcessesOverNccl) {
    ExpectTheSameOverNccl(8);
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
            return TrainOnGpus(program, {}, "bfloat16", words);
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
            const ProgramResult result = RunProgram("generate", words, kGpuLimitS);
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

TEST(CudaPrograms, EndWhenAProcessIsKilled) {
    INFINI_SKIP_WITHOUT_CUDA();
    ExpectThatTheOtherProcessEnds(SIGKILL, /*shares_gpu=*/true);
}

TEST(CudaPrograms, EndWhenAProcessIsStopped) {
    INFINI_SKIP_WITHOUT_CUDA();
    ExpectThatTheOtherProcessEnds(SIGSTOP, /*shares_gpu=*/true);
}

TEST(CudaPrograms, SayHowToStartProcessesWhenNcclCannotTakeThreads) {
    INFINI_SKIP_WITHOUT_CUDA();
    const std::string num_ranks = std::to_string(NumGpus() + 1);
    const TemporaryFolder folder;
    std::vector<std::string> words = GpuTrainingFlags(folder, "float32");
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
