#include "infini_train/include/nn/parallel/pp/schedules.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/include/nn/parallel/pp/simulator.h"
#include "test/nn/parallel/pp/golden_plans.h"

namespace infini_train::nn::parallel::test {
namespace {

std::string OrderOf(const ActionList& plan, const PipelineShape& shape, int rank) {
    std::string order;
    for (const Action& action : plan) {
        order += (order.empty() ? "" : " ") + ToString(action, shape, rank);
    }
    return order;
}

TEST(Schedules, MeetTheGoldenOrders) {
    int num_compared = 0;
    for (const auto& [name, numbers, file] : GoldenPlans()) {
        const std::unique_ptr<PipelineSchedule> schedule = PlannerOf(name);
        if (schedule == nullptr) {
            continue;
        }
        SCOPED_TRACE(name);
        const PipelineShape shape = {.num_ranks = numbers.at("P").get<int>(),
                                     .num_microbatches = numbers.at("M").get<int>(),
                                     .num_chunks = numbers.at("V").get<int>()};
        schedule->CheckShape(shape);
        for (int rank = 0; rank < shape.num_ranks; ++rank) {
            EXPECT_EQ(OrderOf(schedule->Plan(shape, rank), shape, rank),
                      numbers.at("order").at(static_cast<size_t>(rank)).get<std::string>());
        }
        ++num_compared;
    }
    EXPECT_EQ(num_compared, 10);
}

/// All shapes, M < P among them, that a schedule takes.
void ForEachShape(int max_chunks, const std::function<void(const PipelineShape&)>& run) {
    for (int num_ranks = 1; num_ranks <= 8; ++num_ranks) {
        for (int num_chunks = 1; num_chunks <= max_chunks; ++num_chunks) {
            for (int num_microbatches = 1; num_microbatches <= 20; ++num_microbatches) {
                SCOPED_TRACE(StrCat("P ", num_ranks, " V ", num_chunks, " M ", num_microbatches));
                run({.num_ranks = num_ranks, .num_microbatches = num_microbatches, .num_chunks = num_chunks});
            }
        }
    }
}

/// Chunks that a rank holds at most; and whether the bubble formula holds for the shape.
using PeakFormula = std::function<int(const PipelineShape&, int rank)>;
using BubbleRule = std::function<bool(const PipelineShape&)>;

void ExpectSound(const std::string& name, int max_chunks, const PeakFormula& peak_of, const BubbleRule& has_bubble) {
    const std::unique_ptr<PipelineSchedule> schedule = MakeSchedule(name);
    ForEachShape(max_chunks, [&](const PipelineShape& shape) {
        schedule->CheckShape(shape);
        std::vector<ActionList> plans = PlacedPlans(*schedule, shape);
        const PlanReport placed = CheckPlans(shape, plans, PlanKind::kTraining, {});
        const Simulation simulation = Simulate(shape, plans, {});
        for (int rank = 0; rank < shape.num_ranks; ++rank) {
            EXPECT_EQ(placed.peak_chunks[static_cast<size_t>(rank)], peak_of(shape, rank)) << "rank " << rank;
        }
        EXPECT_EQ(simulation.peak_chunks, placed.peak_chunks);
        // A chunk's F and D take 3: bubble (P - 1)(F + D) / V of a rank of V chunks.
        const int formula = 3 * (shape.num_chunks * shape.num_microbatches + shape.num_ranks - 1);
        if (has_bubble(shape)) {
            EXPECT_EQ(simulation.makespan, formula);
        } else {
            EXPECT_GE(simulation.makespan, formula);
        }
        AllocateSlots(shape, &plans);
        EXPECT_EQ(CheckPlans(shape, plans, PlanKind::kTraining, {}).peak_chunks, placed.peak_chunks);
    });
}

bool Always(const PipelineShape&) {
    return true;
}

TEST(Schedules, GPipeIsSoundForEveryShape) {
    ExpectSound(
        "gpipe", 1, [](const PipelineShape& shape, int) { return shape.num_microbatches; }, Always);
}

TEST(Schedules, OneForwardOneBackwardIsSoundForEveryShape) {
    const PeakFormula peak = [](const PipelineShape& shape, int rank) {
        return std::min(shape.num_microbatches, shape.num_ranks - rank);
    };
    ExpectSound("1f1b", 1, peak, Always);
}

TEST(Schedules, EagerOneForwardOneBackwardIsSoundForEveryShape) {
    const PeakFormula peak = [](const PipelineShape& shape, int rank) {
        return std::min(shape.num_microbatches, 2 * (shape.num_ranks - rank) - 1);
    };
    ExpectSound("1f1b_eager", 1, peak, Always);
}

/// The largest group, written the other way round than in the planner: the M micro-batches in max(1, M / P) groups.
int LargestGroup(const PipelineShape& shape) {
    const int num_groups = std::max(1, shape.num_microbatches / shape.num_ranks);
    return (shape.num_microbatches + num_groups - 1) / num_groups;
}

TEST(Schedules, InterleavedIsSoundForEveryShape) {
    const PeakFormula peak = [](const PipelineShape& shape, int rank) {
        const int warm_up = 2 * (shape.num_ranks - 1 - rank) + (shape.num_chunks - 1) * LargestGroup(shape);
        return std::min(warm_up + 1, shape.num_microbatches * shape.num_chunks);
    };
    ExpectSound("interleaved", 4, peak,
                [](const PipelineShape& shape) { return shape.num_microbatches % shape.num_ranks == 0; });
}

TEST(Schedules, LoopedBfsIsSoundForEveryShape) {
    ExpectSound(
        "looped_bfs", 4, [](const PipelineShape& shape, int) { return shape.num_microbatches * shape.num_chunks; },
        [](const PipelineShape& shape) { return shape.num_microbatches >= shape.num_ranks; });
}

// Five micro-batches on two ranks are two groups: 0 1 and 2 3 4.
TEST(Schedules, InterleavedTakesGroupsOfUnequalSize) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 5, .num_chunks = 2};
    const ScheduleInterleaved1F1B schedule;
    EXPECT_EQ(OrderOf(schedule.Plan(shape, 0), shape, 0),
              "F0.0 F0.1 F2.0 F2.1 F0.2 F0.3 D2.0 F0.4 D2.1 F2.2 D0.0 F2.3 D0.1 F2.4 D2.2 D2.3 D2.4 D0.2 D0.3 D0.4");
    EXPECT_EQ(OrderOf(schedule.Plan(shape, 1), shape, 1),
              "F1.0 F1.1 F3.0 F3.1 D3.0 F1.2 D3.1 F1.3 D1.0 F1.4 D1.1 F3.2 D3.2 F3.3 D3.3 F3.4 D3.4 D1.2 D1.3 D1.4");
}

// schedules.md, table of sensitivity, P = 8, M = 16: costs in tenths of F, B, W and a hop.
TEST(Schedules, MeetTheBubblesOfTheSensitivityTable) {
    struct Row {
        double forward = 10.0;
        double backward_input = 10.0;
        double backward_weight = 10.0;
        double hop = 0.0;
        std::vector<double> bubbles = {};
    };
    const std::vector<Row> rows = {
        {10, 10, 10, 0, {.304, .304, .304, .179}}, {10, 11, 9, 1, {.311, .324, .311, .200}},
        {10, 10, 10, 5, {.338, .392, .338, .273}}, {10, 20, 10, 1, {.310, .319, .310, .195}},
        {10, 12, 6, 1, {.312, .325, .312, .201}},
    };
    const std::vector<std::string> names = {"gpipe", "1f1b", "1f1b_eager", "interleaved"};
    for (const Row& row : rows) {
        for (size_t i = 0; i < names.size(); ++i) {
            const int num_chunks = names[i] == "interleaved" ? 2 : 1;
            const PipelineShape shape = {.num_ranks = 8, .num_microbatches = 16, .num_chunks = num_chunks};
            const double scale = 2.0 / num_chunks;
            const StageCosts costs = {.forward = scale * row.forward,
                                      .backward = scale * (row.backward_input + row.backward_weight)};
            const Simulation simulation = Simulate(
                shape, ComputePlans(*MakeSchedule(names[i]), shape),
                {.stages = std::vector<StageCosts>(static_cast<size_t>(shape.num_stages()), costs), .hop = row.hop});
            EXPECT_NEAR(simulation.bubble_makespan, row.bubbles[i], 0.0005) << names[i] << " hop " << row.hop;
        }
    }
}

std::string MessageOf(const std::function<void()>& run) {
    try {
        run();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

// O03
TEST(Schedules, OfOneChunkRefuseMoreAndNameBothFlags) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 4, .num_chunks = 2};
    for (const std::string name : {"gpipe", "1f1b", "1f1b_eager"}) {
        EXPECT_EQ(MessageOf([&] { MakeSchedule(name)->CheckShape(shape); }),
                  "--pipeline_schedule " + name +
                      ": this schedule runs one chunk a rank (got --virtual_pipeline_parallel 2, wanted 1, or "
                      "--pipeline_schedule interleaved or looped_bfs)");
    }
}

TEST(Schedules, RefuseAPlacementThatIsNoLoop) {
    for (const std::string name : {"interleaved", "looped_bfs"}) {
        const PipelineShape shape = {
            .num_ranks = 2, .num_microbatches = 4, .num_chunks = 2, .rank_of_stage = {0, 1, 1, 0}};
        EXPECT_EQ(
            MessageOf([&] { MakeSchedule(name)->CheckShape(shape); }),
            "--pipeline_schedule " + name +
                ": the stages of this schedule go round the ranks: stage 2 is on the wrong one (got rank 1, wanted "
                "rank 0)");
    }
    for (const std::string name : {"gpipe", "1f1b", "1f1b_eager"}) {
        const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 4, .rank_of_stage = {1, 0}};
        EXPECT_NE(MessageOf([&] { MakeSchedule(name)->CheckShape(shape); }), "no error");
    }
}

/// The default of the base class.
class OwnSchedule : public PipelineSchedule {
 public:
    ActionList Plan(const PipelineShape&, int) const override { return {}; }
};

TEST(Schedules, OfAUserRunOneChunkUnlessTheySayMore) {
    const OwnSchedule schedule;
    schedule.CheckShape({.num_ranks = 3, .num_microbatches = 1});
    const std::string message = MessageOf([&] { schedule.CheckShape({.num_ranks = 3, .num_chunks = 4}); });
    EXPECT_NE(message.find("--virtual_pipeline_parallel 4"), std::string::npos) << message;
}

TEST(Schedules, OfAnUnknownNameAreRefusedWithTheNamesThereAre) {
    for (const std::string name : {"", "gpip", "GPipe", "1F1B", "zb", "plan.jsn"}) {
        const std::string message = MessageOf([&] { MakeSchedule(name); });
        EXPECT_EQ(message,
                  "--pipeline_schedule: no such schedule (" + (name.empty() ? "" : "got " + name + ", ") +
                      "wanted gpipe, 1f1b, 1f1b_eager, interleaved, looped_bfs or the path of a plan (.json))");
    }
}

TEST(ScheduleFromFile, PlansWhatTheGoldenOrdersSay) {
    const infini_train::test::TemporaryFolder folder;
    for (const auto& [name, numbers, file] : GoldenPlans()) {
        SCOPED_TRACE(name);
        const std::string path = folder.File("plan.json");
        infini_train::test::WriteTextFile(path, numbers.dump());
        const std::unique_ptr<PipelineSchedule> schedule = MakeSchedule(path);
        schedule->CheckShape(file.shape);
        std::vector<ActionList> plans = ComputePlans(*schedule, file.shape);
        EXPECT_EQ(plans, file.plans);
        PlaceReceives(file.shape, &plans);
        EXPECT_EQ(CheckPlans(file.shape, plans, PlanKind::kTraining, {}).peak_chunks,
                  numbers.at("peak_chunks").get<std::vector<int>>());
        AllocateSlots(file.shape, &plans);
        CheckPlans(file.shape, plans, PlanKind::kTraining, {});
    }
}

TEST(ScheduleFromFile, RefusesAPlanThatCannotRun) {
    const infini_train::test::TemporaryFolder folder;
    const std::string path = folder.File("plan.json");
    const auto verdict = [&](const std::string& rank_0, const std::string& rank_1) {
        const nlohmann::json plan = {{"P", 2}, {"M", 2}, {"V", 1}, {"order", {rank_0, rank_1}}};
        infini_train::test::WriteTextFile(path, plan.dump());
        return MessageOf([&] { ScheduleFromFile schedule(path); });
    };
    EXPECT_EQ(verdict("F0.0 F0.1 D0.0 D0.1", "F1.0 F1.1 D1.0 D1.1"), "no error");
    EXPECT_EQ(verdict("F0.0 F0.1 D0.0 D0.1", "F1.0 F1.1 D1.0 B1.1"),
              path +
                  ": plan of rank 1: a backward is missing, or there are two (got B1.1 in line 6, wanted D1.1, or B1.1 "
                  "and W1.1)");
    EXPECT_EQ(verdict("F0.0 D0.0 F0.1 D0.1", "F1.0 F1.1 D1.0 D1.1"),
              path +
                  ": plan of rank 1, line 4 (F1.1): deadlock: waits for the forward of micro-batch 1 for stage 1 from "
                  "rank 0, which waits at line 3 (D0.0) for the backward of micro-batch 0 for stage 0 from rank 1, "
                  "which waits here");
}

TEST(ScheduleFromFile, RefusesARunOfAnotherShape) {
    const infini_train::test::TemporaryFolder folder;
    const std::string path = folder.File("plan.json");
    infini_train::test::WriteTextFile(path, GoldenFile().at("P2_M4").at("zb_v").dump());
    const ScheduleFromFile schedule(path);
    const PipelineShape shape = schedule.shape();
    EXPECT_EQ(shape.rank_of_stage, (std::vector<int>{0, 1, 1, 0}));
    schedule.CheckShape(shape);
    PipelineShape other = shape;
    other.num_ranks = 3;
    EXPECT_EQ(MessageOf([&] { schedule.CheckShape(other); }),
              path + ": the plan is for another number of ranks (P) than this run's (got 2, wanted 3)");
    other = shape;
    other.num_microbatches = 5;
    EXPECT_EQ(MessageOf([&] { schedule.CheckShape(other); }),
              path + ": the plan is for another number of micro-batches (M) than this run's (got 4, wanted 5)");
    other = shape;
    other.num_chunks = 1;
    EXPECT_EQ(MessageOf([&] { schedule.CheckShape(other); }),
              path + ": the plan is for another number of chunks a rank (V) than this run's (got 2, wanted 1)");
    other = shape;
    other.rank_of_stage = {};
    EXPECT_EQ(MessageOf([&] { schedule.CheckShape(other); }),
              path + ": the plan has stage 2 on another rank than this run (got 1, wanted 0)");
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
