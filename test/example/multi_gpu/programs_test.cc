// The programs on several GPUs, one a rank: as threads, as processes, and as both they learn, to the bit, what one GPU
// does. As many stages as there are GPUs, of 2, 4 and 8.

#include <algorithm>
#include <csignal>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/cuda_compare.h"
#include "test/support/gpu_processes.h"
#include "test/support/gpu_training.h"

namespace infini_train::test {
namespace {

std::vector<std::string> Pipeline(int num_stages, const char* schedule) {
    return {"--pipeline_parallel", std::to_string(num_stages), "--pipeline_schedule", schedule, "--timeout_s", "60"};
}

using Case = std::tuple<const char*, const char*>;  // program, dtype
class MultiGpuPrograms : public testing::TestWithParam<Case> {
 protected:
    void SetUp() override {
        INFINI_SKIP_WITHOUT_GPUS(2);
        one_rank_ = TrainOnGpus(program_, {}, dtype_, {});
        ASSERT_EQ(NumLines(one_rank_), 5);
    }

    std::string program_ = std::get<0>(GetParam());
    std::string dtype_ = std::get<1>(GetParam());
    std::string one_rank_;
};

TEST_P(MultiGpuPrograms, LearnTheSameWithRankThreads) {
    for (int num_stages = 2; num_stages <= std::min(NumGpus(), 8); num_stages *= 2) {
        for (const char* transport : {"nccl", "copy"}) {
            for (const char* schedule : {"gpipe", "1f1b", "1f1b_eager"}) {
                EXPECT_EQ(
                    TrainOnGpus(program_, {}, dtype_, Join(Pipeline(num_stages, schedule), {"--transport", transport})),
                    one_rank_)
                    << num_stages << " stages, " << schedule << ", " << transport;
            }
        }
    }
}

TEST_P(MultiGpuPrograms, LearnTheSameWithProcesses) {
    for (int num_stages = 2; num_stages <= std::min(NumGpus(), 8); num_stages *= 2) {
        EXPECT_EQ(TrainOnGpus(program_, RunLocal(num_stages), dtype_, Pipeline(num_stages, "1f1b")), one_rank_)
            << num_stages << " stages";
    }
}

TEST_P(MultiGpuPrograms, LearnTheSameWithProcessesOfTwoRankThreads) {
    INFINI_SKIP_WITHOUT_GPUS(4);
    EXPECT_EQ(TrainOnGpus(program_, RunLocal(2), dtype_, Join(Pipeline(4, "1f1b"), {"--nthread_per_process", "2"})),
              one_rank_);
}

INSTANTIATE_TEST_SUITE_P(Models, MultiGpuPrograms,
                         testing::Combine(testing::Values("gpt2", "llama3"), testing::Values("float32", "bfloat16")),
                         [](const testing::TestParamInfo<Case>& info) {
                             return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

TEST(MultiGpuPrograms, TrainAFileOfLlmcWithAStageAGpu) {
    INFINI_SKIP_WITHOUT_GPUS(2);
    const TemporaryFolder folder;
    const std::string tokens = WriteText(folder, 60000);
    for (int num_stages = 2; num_stages <= std::min(NumGpus(), 8); num_stages *= 2) {
        const std::string stages = std::to_string(num_stages);
        const ProgramResult result =
            RunProgram("llama3",
                       {"--input_bin", tokens, "--llmc_filepath",
                        std::string(INFINI_SOURCE_DIR) + "/test/reference/llama_tiny.bin", "--device", "cuda",
                        "--nthread_per_process", stages, "--batch_size", "10", "--total_batch_size", "5120",
                        "--num_iteration", "10", "--pipeline_parallel", stages},
                       kGpuLimitS);
        EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
        EXPECT_TRUE(Contains(result.out, "step   10/10")) << result.out;
    }
}

TEST(MultiGpuPrograms, EndWhenAProcessIsKilled) {
    INFINI_SKIP_WITHOUT_GPUS(2);
    ExpectThatTheOtherProcessEnds(SIGKILL, /*shares_gpu=*/false);
}

TEST(MultiGpuPrograms, EndWhenAProcessIsStopped) {
    INFINI_SKIP_WITHOUT_GPUS(2);
    ExpectThatTheOtherProcessEnds(SIGSTOP, /*shares_gpu=*/false);
}

}  // namespace
}  // namespace infini_train::test
