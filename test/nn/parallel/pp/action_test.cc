#include "infini_train/include/nn/parallel/pp/action.h"

#include "gtest/gtest.h"

namespace infini_train::nn::parallel {
namespace {

TEST(Action, IsPrintedWithItsStage) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 12, .num_chunks = 2};
    EXPECT_EQ(ToString({.kind = ActionKind::kForward, .chunk = 1, .microbatch = 0}, shape, 1), "F3.0");
    EXPECT_EQ(ToString({.kind = ActionKind::kBackward, .chunk = 0, .microbatch = 11}, shape, 1), "D1.11");
    EXPECT_EQ(ToString({.kind = ActionKind::kBackwardInput, .chunk = 1, .microbatch = 2}, shape, 0), "B2.2");
    EXPECT_EQ(ToString({.kind = ActionKind::kBackwardWeight, .chunk = 0, .microbatch = 1}, shape, 0), "W0.1");
}

TEST(Action, ThatReceivesIsPrintedWithItsSlot) {
    const PipelineShape shape = {.num_ranks = 2, .num_chunks = 2, .rank_of_stage = {0, 1, 1, 0}};
    Action receive = {.kind = ActionKind::kReceive, .chunk = 1, .microbatch = 4, .slot = 1};
    EXPECT_EQ(ToString(receive, shape, 0), "RF3.4/1");
    receive.direction = comm::Direction::kBackward;
    receive.slot = 0;
    EXPECT_EQ(ToString(receive, shape, 1), "RB2.4/0");
}

}  // namespace
}  // namespace infini_train::nn::parallel
