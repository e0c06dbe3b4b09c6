#include "infini_train/include/nn/parallel/pp/passes.h"

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "test/nn/parallel/pp/golden_plans.h"

namespace infini_train::nn::parallel::test {
namespace {

using comm::Direction;

std::string Text(const PipelineShape& shape, const std::vector<ActionList>& plans, int rank) {
    std::string text;
    for (const Action& action : plans[static_cast<size_t>(rank)]) {
        text += (text.empty() ? "" : " ") + ToString(action, shape, rank);
    }
    return text;
}

TEST(PlaceReceives, PutsEachDirectlyBeforeItsConsumer) {
    const PipelineShape shape = {.num_ranks = 3, .num_microbatches = 2};
    const std::vector<ActionList> plans = PlacedPlans(ScheduleGPipe(), shape);
    EXPECT_EQ(Text(shape, plans, 0), "F0.0 F0.1 RB0.0/0 D0.0 RB0.1/0 D0.1");
    EXPECT_EQ(Text(shape, plans, 1), "RF1.0/0 F1.0 RF1.1/0 F1.1 RB1.0/0 D1.0 RB1.1/0 D1.1");
    EXPECT_EQ(Text(shape, plans, 2), "RF2.0/0 F2.0 RF2.1/0 F2.1 D2.0 D2.1");
}

TEST(PlaceReceives, CountsTheEdgesFromARankToItself) {
    const PipelineShape shape = {.num_ranks = 1, .num_microbatches = 2, .num_chunks = 2};
    const std::vector<ActionList> plans = PlacedPlans(ScheduleLoopedBFS(), shape);
    EXPECT_EQ(Text(shape, plans, 0), "F0.0 F0.1 RF1.0/0 F1.0 RF1.1/0 F1.1 D1.0 D1.1 RB0.0/0 D0.0 RB0.1/0 D0.1");
}

TEST(PlaceReceives, ReplacesThoseThatAreThere) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 5, .num_chunks = 2};
    std::vector<ActionList> plans = PlacedPlans(ScheduleInterleaved1F1B(), shape);
    const std::vector<ActionList> placed = plans;
    AllocateSlots(shape, &plans);
    EXPECT_NE(plans, placed);
    PlaceReceives(shape, &plans);
    EXPECT_EQ(plans, placed);
}

ActionList Forwards(const std::vector<int>& microbatches) {
    ActionList plan;
    for (const int m : microbatches) {
        plan.push_back({.kind = ActionKind::kForward, .chunk = 0, .microbatch = m});
    }
    return plan;
}

// 0 1 2 3 are sent and 2 0 3 1 consumed: what is consumed early waits for the receives of those sent before it.
TEST(PlaceReceives, KeepsTheOrderOfTheSender) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 4};
    std::vector<ActionList> plans = {Forwards({0, 1, 2, 3}), Forwards({2, 0, 3, 1})};
    PlaceReceives(shape, &plans);
    EXPECT_EQ(Text(shape, plans, 1), "RF1.0/0 RF1.1/1 RF1.2/2 F1.2 F1.0 RF1.3/0 F1.3 F1.1");
    CheckPlans(shape, plans, PlanKind::kForwardOnly, {});
    // Three wait at once: 0, 1 and 2, and then 0, 1 and 3.
    AllocateSlots(shape, &plans);
    EXPECT_EQ(Text(shape, plans, 1), "RF1.0/0 RF1.1/1 RF1.2/2 RF1.3/3 F1.2 F1.0 F1.3 F1.1");
    CheckPlans(shape, plans, PlanKind::kForwardOnly, {});
}

TEST(AllocateSlots, GivesOneSlotMoreThanThePlanNeeds) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 4};
    std::vector<ActionList> plans = PlacedPlans(ScheduleGPipe(), shape);
    AllocateSlots(shape, &plans);
    EXPECT_EQ(Text(shape, plans, 0), "RB0.0/0 F0.0 F0.1 F0.2 F0.3 RB0.1/1 D0.0 RB0.2/0 D0.1 RB0.3/1 D0.2 D0.3");
    EXPECT_EQ(Text(shape, plans, 1), "RF1.0/0 RF1.1/1 F1.0 RF1.2/0 F1.1 RF1.3/1 F1.2 F1.3 D1.0 D1.1 D1.2 D1.3");
    // Eager 1F1B: two wait (recv_slots 2), so there are three slots.
    plans = PlacedPlans(Schedule1F1B(Schedule1F1B::WarmUp::kEager), shape);
    AllocateSlots(shape, &plans);
    EXPECT_EQ(Text(shape, plans, 1), "RF1.0/0 RF1.1/1 RF1.2/2 F1.0 D1.0 RF1.3/0 F1.1 D1.1 F1.2 D1.2 F1.3 D1.3");
}

TEST(AllocateSlots, CountsTheEdgesFromARankToItself) {
    const PipelineShape shape = {.num_ranks = 1, .num_microbatches = 2, .num_chunks = 2};
    std::vector<ActionList> plans = PlacedPlans(ScheduleLoopedBFS(), shape);
    AllocateSlots(shape, &plans);
    // Two forwards wait at once, and two gradients.
    EXPECT_EQ(Text(shape, plans, 0), "RF1.0/0 RF1.1/1 RB0.0/0 RB0.1/1 F0.0 F0.1 F1.0 F1.1 D1.0 D1.1 D0.0 D0.1");
}

/// Of each receive: its place among all, and its place among those of its edge, the slot of which it has.
struct Placed {
    std::map<std::tuple<int, Direction, int, int>, size_t> lines;  // by rank, direction, chunk, micro-batch
    std::map<Edge, std::vector<int>> slots;
};

Placed PlacesOf(const PipelineShape& shape, const std::vector<ActionList>& plans) {
    Placed placed;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        size_t num_compute = 0;
        for (const Action& action : plans[static_cast<size_t>(rank)]) {
            if (action.kind != ActionKind::kReceive) {
                ++num_compute;
                continue;
            }
            placed.lines[{rank, action.direction, action.chunk, action.microbatch}] = num_compute;
            const int stage = shape.StageOf(rank, action.chunk);
            const int from = shape.RankOf(action.direction == Direction::kForward ? stage - 1 : stage + 1);
            placed.slots[{.from = from, .to = rank, .direction = action.direction}].push_back(action.slot);
        }
    }
    return placed;
}

TEST(AllocateSlots, NumbersThemInTurnAndMovesNoReceiveDown) {
    for (const auto& [name, numbers, file] : GoldenPlans()) {
        SCOPED_TRACE(name);
        std::vector<ActionList> plans = file.plans;
        PlaceReceives(file.shape, &plans);
        const Placed before = PlacesOf(file.shape, plans);
        AllocateSlots(file.shape, &plans);
        const Placed after = PlacesOf(file.shape, plans);
        const Simulation simulation = Simulate(file.shape, plans, {});
        ASSERT_EQ(after.lines.size(), before.lines.size());
        for (const auto& [receive, line] : after.lines) {
            EXPECT_LE(line, before.lines.at(receive));
        }
        for (const auto& [edge, num_slots] : simulation.recv_slots) {
            const std::vector<int>& slots = after.slots.at(edge);
            for (size_t k = 0; k < slots.size(); ++k) {
                EXPECT_EQ(slots[k], static_cast<int>(k) % (num_slots + 1)) << edge.from << " to " << edge.to;
            }
        }
    }
}

TEST(Passes, LeaveWhatIsWrongToTheChecker) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 3};
    const auto verdict = [&](std::vector<ActionList> plans) -> std::string {
        PlaceReceives(shape, &plans);
        AllocateSlots(shape, &plans);
        try {
            CheckPlans(shape, plans, PlanKind::kForwardOnly, {});
            return "ok";
        } catch (const Error& error) {
            return error.what();
        }
    };
    EXPECT_EQ(verdict({Forwards({0, 1, 2}), Forwards({0, 1, 2})}), "ok");
    EXPECT_EQ(verdict({Forwards({0, 2}), Forwards({0, 1, 2})}), "plan of rank 0: a forward is missing (wanted F0.1)");
    EXPECT_EQ(verdict({Forwards({0, 1, 2}), Forwards({0, 2})}), "plan of rank 1: a forward is missing (wanted F1.1)");
    EXPECT_EQ(verdict({{}, Forwards({0, 1, 2})}), "plan of rank 0: a forward is missing (wanted F0.0)");
    EXPECT_EQ(verdict({{}, {}}), "plan of rank 0: a forward is missing (wanted F0.0)");
    EXPECT_NE(verdict({Forwards({0, 1, 2}), Forwards({0, 1, 1, 2})}).find("comes a second time"), std::string::npos);
    EXPECT_NE(verdict({Forwards({0, 0, 1, 2}), Forwards({0, 1, 2})}).find("comes a second time"), std::string::npos);

    // A plan that waits for ever: a stage before the one that feeds it.
    const PipelineShape of_two_chunks = {.num_ranks = 1, .num_microbatches = 1, .num_chunks = 2};
    std::vector<ActionList> plans = {{{.kind = ActionKind::kForward, .chunk = 1}, {.kind = ActionKind::kForward}}};
    PlaceReceives(of_two_chunks, &plans);
    AllocateSlots(of_two_chunks, &plans);
    EXPECT_THROW(CheckPlans(of_two_chunks, plans, PlanKind::kForwardOnly, {}), Error);
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
