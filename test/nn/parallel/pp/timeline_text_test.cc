#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/nn/parallel/pp/timeline.h"
#include "test/nn/parallel/pp/golden_plans.h"

namespace infini_train::nn::parallel::test {
namespace {

// Four ranks, eight micro-batches: docs/pipeline.md explains the form.
// clang-format off
const std::vector<std::pair<std::string, std::string>> kTimelines = {
    {"gpipe", R"(
r0| f0 f1 f2 f3 f4 f5 f6 f7 .. .. .. .. .. .. .. .. .. d0 -- d1 -- d2 -- d3 -- d4 -- d5 -- d6 -- d7 --
r1| .. f0 f1 f2 f3 f4 f5 f6 f7 .. .. .. .. .. .. d0 -- d1 -- d2 -- d3 -- d4 -- d5 -- d6 -- d7 --
r2| .. .. f0 f1 f2 f3 f4 f5 f6 f7 .. .. .. d0 -- d1 -- d2 -- d3 -- d4 -- d5 -- d6 -- d7 --
r3| .. .. .. f0 f1 f2 f3 f4 f5 f6 f7 d0 -- d1 -- d2 -- d3 -- d4 -- d5 -- d6 -- d7 --
)"},
    {"1f1b", R"(
r0| f0 f1 f2 f3 .. .. .. .. .. .. d0 -- f4 d1 -- f5 d2 -- f6 d3 -- f7 d4 -- .. d5 -- .. d6 -- .. d7 --
r1| .. f0 f1 f2 .. .. .. .. d0 -- f3 d1 -- f4 d2 -- f5 d3 -- f6 d4 -- f7 d5 -- .. d6 -- .. d7 --
r2| .. .. f0 f1 .. .. d0 -- f2 d1 -- f3 d2 -- f4 d3 -- f5 d4 -- f6 d5 -- f7 d6 -- .. d7 --
r3| .. .. .. f0 d0 -- f1 d1 -- f2 d2 -- f3 d3 -- f4 d4 -- f5 d5 -- f6 d6 -- f7 d7 --
)"},
    {"interleaved_v2", R"(
r0| f0 f1 f2 f3 F0 F1 F2 F3 f4 f5 f6 .. .. .. D0 -- f7 D1 -- .. F4 D2 -- F5 D3 -- F6 d0 -- F7 d1 -- d2 -- .. d3 -- .. D4 -- .. D5 -- .. D6 -- .. D7 -- d4 -- d5 -- d6 -- d7 --
r1| .. f0 f1 f2 f3 F0 F1 F2 F3 f4 .. .. D0 -- f5 D1 -- f6 D2 -- f7 D3 -- F4 d0 -- F5 d1 -- F6 d2 -- F7 d3 -- .. D4 -- .. D5 -- .. D6 -- .. D7 -- d4 -- d5 -- d6 -- d7 --
r2| .. .. f0 f1 f2 f3 F0 F1 F2 .. D0 -- F3 D1 -- f4 D2 -- f5 D3 -- f6 d0 -- f7 d1 -- F4 d2 -- F5 d3 -- F6 D4 -- F7 D5 -- .. D6 -- .. D7 -- d4 -- d5 -- d6 -- d7 --
r3| .. .. .. f0 f1 f2 f3 F0 D0 -- F1 D1 -- F2 D2 -- F3 D3 -- f4 d0 -- f5 d1 -- f6 d2 -- f7 d3 -- F4 D4 -- F5 D5 -- F6 D6 -- F7 D7 -- d4 -- d5 -- d6 -- d7 --
)"},
    {"zb_h1", R"(
r0| f0 f1 f2 f3 .. .. .. b0 w0 f4 b1 w1 f5 b2 w2 f6 b3 w3 f7 b4 w4 b5 w5 b6 w6 b7 w7
r1| .. f0 f1 f2 .. .. b0 f3 b1 w0 f4 b2 w1 f5 b3 w2 f6 b4 w3 f7 b5 w4 b6 w5 b7 w6 w7
r2| .. .. f0 f1 .. b0 f2 b1 f3 b2 w0 f4 b3 w1 f5 b4 w2 f6 b5 w3 f7 b6 w4 b7 w5 w6 w7
r3| .. .. .. f0 b0 f1 b1 f2 b2 f3 b3 w0 f4 b4 w1 f5 b5 w2 f6 b6 w3 f7 b7 w4 w5 w6 w7
)"},
    {"zb_h2", R"(
r0| f0 f1 f2 f3 f4 f5 f6 b0 w0 f7 b1 w1 b2 w2 b3 w3 b4 w4 b5 w5 b6 w6 b7 w7
r1| .. f0 f1 f2 f3 f4 b0 f5 b1 f6 b2 w0 f7 b3 w1 b4 w2 b5 w3 b6 w4 b7 w5 w6 w7
r2| .. .. f0 f1 f2 b0 f3 b1 f4 b2 f5 b3 f6 b4 w0 f7 b5 w1 b6 w2 b7 w3 w4 w5 w6 w7
r3| .. .. .. f0 b0 f1 b1 f2 b2 f3 b3 f4 b4 f5 b5 f6 b6 w0 f7 b7 w1 w2 w3 w4 w5 w6 w7
)"},
    {"zb_v", R"(
r0| f0 f1 f2 f3 f4 f5 f6 F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3 f7 b0 w0 F4 B4 W4 b1 w1 F5 B5 W5 b2 w2 F6 B6 W6 b3 w3 F7 B7 W7 b4 w4 b5 w5 b6 w6 b7 w7
r1| .. f0 f1 f2 f3 f4 F0 f5 F1 B0 W0 F2 B1 W1 F3 B2 W2 f6 b0 w0 F4 B3 W3 f7 b1 w1 F5 B4 W4 b2 w2 F6 B5 W5 b3 w3 F7 B6 W6 b4 B7 b5 w4 b6 w5 b7 w6 W7 w7
r2| .. .. f0 f1 f2 F0 f3 F1 f4 F2 B0 W0 F3 B1 W1 f5 b0 w0 F4 B2 W2 f6 b1 w1 F5 B3 W3 f7 b2 w2 F6 B4 W4 b3 w3 F7 B5 W5 b4 B6 b5 B7 b6 w4 b7 w5 W6 W7 w6 w7
r3| .. .. .. f0 F0 f1 F1 f2 F2 f3 F3 B0 W0 f4 b0 w0 F4 B1 W1 f5 b1 w1 F5 B2 W2 f6 b2 w2 F6 B3 W3 f7 b3 w3 F7 B4 W4 b4 B5 b5 B6 b6 B7 b7 w4 W5 W6 W7 w5 w6 w7
)"},
};
// clang-format on

std::string AtUnitCosts(const PipelineShape& shape, const std::vector<ActionList>& plans) {
    return "\n" + TimelineText(shape, Simulate(shape, plans, {}));
}

SimulatedAction Forward(int chunk, int microbatch, double start, double end) {
    return {.action = {.chunk = chunk, .microbatch = microbatch}, .start = start, .end = end};
}

TEST(TimelineText, IsThePrintedOneOfEachGoldenOrder) {
    size_t num_found = 0;
    for (const GoldenPlan& plan : GoldenPlans()) {
        for (const auto& [name, text] : kTimelines) {
            if (plan.name == "P4_M8 " + name) {
                EXPECT_EQ(AtUnitCosts(plan.file.shape, plan.file.plans), text) << name;
                ++num_found;
            }
        }
    }
    EXPECT_EQ(num_found, kTimelines.size());
}

TEST(TimelineText, IsThePrintedOneOfEachPlanner) {
    size_t num_found = 0;
    for (const auto& [name, text] : kTimelines) {
        if (const auto schedule = PlannerOf(name)) {
            const PipelineShape shape = {
                .num_ranks = 4, .num_microbatches = 8, .num_chunks = name == "interleaved_v2" ? 2 : 1};
            EXPECT_EQ(AtUnitCosts(shape, ComputePlans(*schedule, shape)), text) << name;
            ++num_found;
        }
    }
    EXPECT_GE(num_found, 3u);
}

TEST(TimelineText, IsAlignedForTwoDigits) {
    Simulation simulation;
    simulation.ranks.resize(11);
    simulation.ranks[0] = {Forward(0, 9, 1.0, 2.0), Forward(1, 10, 2.0, 4.0)};
    simulation.ranks[10] = {Forward(1, 100, 0.0, 1.0), Forward(0, 7, 2.0, 3.0)};
    const PipelineShape shape = {.num_ranks = 11, .num_microbatches = 101, .num_chunks = 2};
    const std::string text = TimelineText(shape, simulation);
    EXPECT_EQ(text.substr(0, text.find("r2")), "r0 | ..   f9   F10  --\nr1 |\n");
    EXPECT_EQ(text.substr(text.find("r10")), "r10| F100 ..   f7\n");
}

TEST(TimelineText, NamesTheChunkWhereThereAreMoreThanTwo) {
    Simulation simulation;
    simulation.ranks = {{Forward(0, 0, 0.0, 1.0),
                         Forward(2, 12, 2.0, 3.0),
                         {.action = {.kind = ActionKind::kBackwardWeight, .chunk = 1}, .start = 3.0, .end = 5.0}}};
    EXPECT_EQ(TimelineText({.num_microbatches = 13, .num_chunks = 3}, simulation), "r0| f0:0  ..    f2:12 w1:0  --\n");
}

TEST(TimelineTextDeathTest, WantsWholeUnits) {
    Simulation simulation;
    simulation.ranks = {{Forward(0, 0, 0.0, 1.5)}};
    EXPECT_DEATH(TimelineText({}, simulation), "whole units of time, not 1.5");
    simulation.ranks = {{Forward(0, 0, 1.0, 1.0)}};
    EXPECT_DEATH(TimelineText({}, simulation), "F0.0 takes no time");
    simulation.ranks = {{Forward(0, 0, 0.0, 2.0), Forward(0, 0, 1.0, 3.0)}};
    EXPECT_DEATH(TimelineText({}, simulation), "starts before the action before it ends");
    simulation.ranks = {};
    EXPECT_DEATH(TimelineText({}, simulation), "ranks of the simulation");
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
