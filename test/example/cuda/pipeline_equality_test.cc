// On GPUs, too, a pipeline learns what one rank learns that accumulates the same micro-batches, to the bit: the rank
// threads of one process share the GPUs that there are, and hand tensors over or copy them.

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/cuda_compare.h"
#include "test/support/equality_grid.h"
#include "test/support/pipeline_case.h"

namespace infini_train::test {
namespace {

class CudaPipelineEquality : public testing::TestWithParam<int> {};

TEST_P(CudaPipelineEquality, HoldsForEachPairOfValues) {
    INFINI_SKIP_WITHOUT_CUDA();
    const std::vector<GridPoint> points = EqualityGrid(GridExtent::kCovered);
    EqualityChecker checker;
    int num_tried = 0;
    for (const size_t i : CoveringSubset(points)) {
        PipelineCase run = points[i].run;
        if (run.num_ranks != GetParam()) {
            continue;
        }
        run.device = DeviceType::kCUDA;
        EXPECT_EQ(checker.DifferenceOf(run), "") << ToString(run);
        ++num_tried;
    }
    EXPECT_GE(num_tried, 6);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaPipelineEquality, testing::Values(1, 2, 3, 4, 8));

TEST(CudaPipeline, LeavesNoMemoryBehindAndTakesNoneAfterTheFirstStep) {
    INFINI_SKIP_WITHOUT_CUDA();
    const PipelineCase run = {
        .num_microbatches = 4, .num_steps = 3, .num_ranks = 4, .schedule = "1f1b", .device = DeviceType::kCUDA};
    PipelineCase longer = run;
    longer.num_steps = 9;
    const std::vector<RankRun> few = RunPipeline(run);
    const std::vector<RankRun> many = RunPipeline(longer);
    for (size_t rank = 0; rank < few.size(); ++rank) {
        EXPECT_EQ(few[rank].peak_bytes, many[rank].peak_bytes) << "rank " << rank;
        EXPECT_EQ(few[rank].live_bytes, many[rank].live_bytes) << "rank " << rank;
    }
}

}  // namespace
}  // namespace infini_train::test
