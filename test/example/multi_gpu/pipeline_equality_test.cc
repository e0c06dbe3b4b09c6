// Rank threads with a GPU each learn, over NCCL and over the copy transport, what one rank learns, to the bit.

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/cuda_compare.h"
#include "test/support/pipeline_case.h"

namespace infini_train::test {
namespace {

class MultiGpuPipeline : public testing::TestWithParam<DataType> {};

TEST_P(MultiGpuPipeline, LearnsWhatOneRankLearns) {
    INFINI_SKIP_WITHOUT_GPUS(2);
    for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
        // 64 x 512 x 64 elements: a message over 4 MiB, which NCCL does not hide in a buffer.
        PipelineCase run = {.model = {.num_layers = 8, .block_size = 512, .num_channels = 64},
                            .dtype = GetParam(),
                            .num_microbatches = 4,
                            .num_rows = 64,
                            .lengths = {512},
                            .schedule = schedule,
                            .device = DeviceType::kCUDA};
        const RunNumbers reference = RunReference(run);
        run.num_chunks = std::string(schedule) == "interleaved" ? 2 : 1;
        for (run.num_ranks = 2; run.num_ranks * run.num_chunks <= 8 && run.num_ranks <= NumGpus(); run.num_ranks *= 2) {
            for (const comm::Transport transport : {comm::Transport::kCopy, comm::Transport::kNccl}) {
                run.transport = transport;
                EXPECT_EQ(Difference(run, reference, RunPipeline(run)), "") << ToString(run);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MultiGpuPipeline, testing::Values(DataType::kFloat32, DataType::kBFloat16));

}  // namespace
}  // namespace infini_train::test
