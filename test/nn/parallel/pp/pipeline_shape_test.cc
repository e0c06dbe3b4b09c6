#include "infini_train/include/nn/parallel/pp/pipeline_shape.h"

#include "gtest/gtest.h"

namespace infini_train::nn::parallel {
namespace {

TEST(PipelineShape, PutsStagesInALoop) {
    const PipelineShape shape = {.num_ranks = 3, .num_chunks = 2};
    EXPECT_EQ(shape.num_stages(), 6);
    EXPECT_EQ(shape.RankOf(4), 1);
    EXPECT_EQ(shape.ChunkOf(4), 1);
    EXPECT_EQ(shape.StageOf(1, 1), 4);
    EXPECT_EQ(shape.StageOf(2, 0), 2);
}

TEST(PipelineShape, TakesAnyPlacement) {
    const PipelineShape shape = {.num_ranks = 2, .num_chunks = 3, .rank_of_stage = {1, 0, 0, 1, 1, 0}};
    EXPECT_EQ(shape.RankOf(3), 1);
    EXPECT_EQ(shape.ChunkOf(3), 1);
    EXPECT_EQ(shape.ChunkOf(5), 2);
    EXPECT_EQ(shape.StageOf(0, 0), 1);
    EXPECT_EQ(shape.StageOf(1, 2), 4);
}

TEST(PipelineShape, FindsEachStageWhereItIs) {
    for (const std::vector<int>& rank_of_stage : {std::vector<int>{}, {0, 1, 2, 2, 1, 0}, {2, 2, 1, 0, 1, 0}}) {
        const PipelineShape shape = {.num_ranks = 3, .num_chunks = 2, .rank_of_stage = rank_of_stage};
        for (int stage = 0; stage < shape.num_stages(); ++stage) {
            EXPECT_EQ(shape.StageOf(shape.RankOf(stage), shape.ChunkOf(stage)), stage);
        }
    }
}

TEST(PipelineShapeDeathTest, KnowsItsBounds) {
    const PipelineShape shape = {.num_ranks = 2, .num_chunks = 2, .rank_of_stage = {0, 1, 1, 1}};
    EXPECT_DEATH(shape.RankOf(4), "stage 4 of 4");
    EXPECT_DEATH(shape.ChunkOf(-1), "stage -1 of 4");
    EXPECT_DEATH(shape.StageOf(2, 0), "rank 2 of 2");
    EXPECT_DEATH(shape.StageOf(0, 2), "chunk 2 of 2");
    EXPECT_DEATH(shape.StageOf(0, 1), "rank 0 holds fewer than 2 stages");
}

}  // namespace
}  // namespace infini_train::nn::parallel
