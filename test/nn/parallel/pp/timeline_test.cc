#include "infini_train/include/nn/parallel/pp/timeline.h"

#include <vector>

#include "gtest/gtest.h"

namespace infini_train::nn::parallel::test {
namespace {

constexpr ActionKind kF = ActionKind::kForward;
constexpr ActionKind kD = ActionKind::kBackward;
constexpr ActionKind kB = ActionKind::kBackwardInput;
constexpr ActionKind kW = ActionKind::kBackwardWeight;

TimelineEvent Event(ActionKind kind, int chunk, int microbatch, double wait_begin_ms, double start_ms, double end_ms) {
    return {{.kind = kind, .chunk = chunk, .microbatch = microbatch}, wait_begin_ms, start_ms, end_ms};
}

/// Two ranks; between 2.0 and 2.5 rank 0 neither works nor waits.
Timeline TwoRanks() {
    return {{Event(kF, 0, 0, 0.0, 0.0, 2.0), Event(kD, 0, 0, 2.5, 7.0, 10.0)},
            {Event(kF, 0, 0, 0.0, 2.25, 4.0), Event(kD, 0, 0, 4.0, 4.0, 6.5)}};
}

void ExpectCosts(const StageCosts& costs, double forward, double backward, double input, double weight) {
    EXPECT_DOUBLE_EQ(costs.forward, forward);
    EXPECT_DOUBLE_EQ(costs.backward, backward);
    EXPECT_DOUBLE_EQ(costs.backward_input, input);
    EXPECT_DOUBLE_EQ(costs.backward_weight, weight);
}

TEST(Timeline, TellsWorkWaitAndBubbleOfEachRank) {
    EXPECT_DOUBLE_EQ(MakespanMs(TwoRanks()), 10.0);
    const std::vector<RankUse> uses = RankUses(TwoRanks());
    ASSERT_EQ(uses.size(), 2u);
    EXPECT_DOUBLE_EQ(uses[0].work_ms, 5.0);
    EXPECT_DOUBLE_EQ(uses[0].wait_ms, 4.5);
    EXPECT_DOUBLE_EQ(uses[0].bubble, 0.5);
    EXPECT_DOUBLE_EQ(uses[1].work_ms, 4.25);
    EXPECT_DOUBLE_EQ(uses[1].wait_ms, 2.25);
    EXPECT_DOUBLE_EQ(uses[1].bubble, 0.575);  // of the makespan of both
}

TEST(Timeline, WithoutActionsHasNoBubble) {
    EXPECT_EQ(MakespanMs({{}, {}}), 0.0);
    const std::vector<RankUse> uses = RankUses({{}, {}});
    ASSERT_EQ(uses.size(), 2u);
    EXPECT_EQ(uses[1].bubble, 0.0);
    // A rank without actions beside one that works idles all the time.
    EXPECT_EQ(RankUses({TwoRanks()[0], {}})[1].bubble, 1.0);
}

TEST(Timeline, OfASimulationWaitsFromTheEndOfAnActionToTheNext) {
    Simulation simulation;
    simulation.ranks = {{{.action = {.kind = kF}, .start = 1.5, .end = 2.5, .ready = 1.5},
                         {.action = {.kind = kD}, .start = 4.0, .end = 7.0, .ready = 4.0}},
                        {}};
    const Timeline timeline = SimulatedTimeline(simulation);
    ASSERT_EQ(timeline.size(), 2u);
    ASSERT_EQ(timeline[0].size(), 2u);
    EXPECT_TRUE(timeline[1].empty());
    EXPECT_EQ(timeline[0][0].wait_begin_ms, 0.0);
    EXPECT_EQ(timeline[0][0].start_ms, 1.5);
    EXPECT_EQ(timeline[0][0].end_ms, 2.5);
    EXPECT_EQ(timeline[0][1].action.kind, kD);
    EXPECT_EQ(timeline[0][1].wait_begin_ms, 2.5);
    EXPECT_EQ(timeline[0][1].start_ms, 4.0);
    EXPECT_EQ(timeline[0][1].end_ms, 7.0);
}

TEST(MeasuredCosts, AreMeansOfEachKindAndStage) {
    // A V: rank 0 holds stages 0 and 3.
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 2, .num_chunks = 2, .rank_of_stage = {0, 1, 1, 0}};
    const Timeline timeline = {
        {Event(kF, 0, 0, 0.0, 0.5, 1.5), Event(kF, 0, 1, 1.5, 1.5, 3.5), Event(kF, 1, 0, 3.5, 6.0, 10.0),
         Event(kB, 1, 0, 10.0, 10.0, 13.0), Event(kW, 1, 0, 13.0, 13.0, 14.0), Event(kW, 1, 1, 14.0, 14.0, 14.5),
         Event(kD, 0, 0, 15.0, 20.0, 26.0)},
        {Event(kF, 0, 0, 0.0, 1.5, 1.75)},
    };
    const PipelineCosts costs = MeasuredCosts(shape, timeline);
    ASSERT_EQ(costs.stages.size(), 4u);
    ExpectCosts(costs.stages[0], 1.5, 6.0, 0.0, 0.0);
    ExpectCosts(costs.stages[1], 0.25, 0.0, 0.0, 0.0);
    ExpectCosts(costs.stages[2], 0.0, 0.0, 0.0, 0.0);
    ExpectCosts(costs.stages[3], 4.0, 0.0, 3.0, 0.75);
    EXPECT_EQ(costs.hop, 0.0);
}

TEST(MeasuredCosts, OfASimulationAreWhatItWasFed) {
    const PipelineShape shape = {.num_ranks = 3, .num_microbatches = 2};
    ActionList plan;
    for (const ActionKind kind : {kF, kB, kW}) {
        for (int m = 0; m < shape.num_microbatches; ++m) {
            plan.push_back({.kind = kind, .microbatch = m});
        }
    }
    PipelineCosts fed;
    for (int stage = 0; stage < 3; ++stage) {
        fed.stages.push_back(
            {.forward = 1.0 + stage, .backward = 0.0, .backward_input = 2.5 + stage, .backward_weight = 0.5});
    }
    const std::vector<ActionList> plans = {plan, plan, plan};
    const Simulation simulation = Simulate(shape, plans, fed);
    const PipelineCosts costs = MeasuredCosts(shape, SimulatedTimeline(simulation));
    for (size_t stage = 0; stage < 3; ++stage) {
        ExpectCosts(costs.stages[stage], fed.stages[stage].forward, 0.0, fed.stages[stage].backward_input, 0.5);
    }
    EXPECT_DOUBLE_EQ(MakespanMs(SimulatedTimeline(simulation)), simulation.makespan);
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
