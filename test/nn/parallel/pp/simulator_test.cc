#include "infini_train/include/nn/parallel/pp/simulator.h"

#include <cmath>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "test/nn/parallel/pp/golden_plans.h"

namespace infini_train::nn::parallel::test {
namespace {

using nlohmann::json;

double RoundTo(double number, int decimals) {
    const double scale = std::pow(10.0, decimals);
    return std::round(number * scale) / scale;
}

std::string NameOf(const Edge& edge) {
    return StrCat(edge.from, ">", edge.to, edge.direction == comm::Direction::kForward ? "f" : "b");
}

json StartsOf(const Simulation& simulation) {
    json starts = json::array();
    for (const std::vector<SimulatedAction>& rank : simulation.ranks) {
        starts.push_back(json::array());
        for (const SimulatedAction& each : rank) {
            starts.back().push_back(each.start);
        }
    }
    return starts;
}

// All of them: also the orders that no planner of ours makes.
TEST(Simulator, MeetsTheGoldenNumbersOfEachOrder) {
    const std::vector<GoldenPlan> goldens = GoldenPlans();
    EXPECT_EQ(goldens.size(), 22u);
    for (const auto& [name, numbers, file] : goldens) {
        SCOPED_TRACE(name);
        const Simulation simulation = Simulate(file.shape, file.plans, {});
        EXPECT_EQ(StartsOf(simulation), numbers.at("start"));
        EXPECT_EQ(json(simulation.makespan), numbers.at("makespan"));
        EXPECT_EQ(json(simulation.span), numbers.at("span"));
        EXPECT_EQ(RoundTo(simulation.bubble_makespan, 6), numbers.at("bubble_makespan_f").get<double>());
        EXPECT_EQ(RoundTo(simulation.bubble_span, 6), numbers.at("bubble_span_f").get<double>());
        EXPECT_EQ(json(simulation.peak_chunks), numbers.at("peak_chunks"));
        for (size_t rank = 0; rank < simulation.work.size(); ++rank) {
            EXPECT_EQ(json(simulation.work[rank]), numbers.at("work_per_rank"));
            EXPECT_EQ(json(simulation.peak_chunks[rank] / static_cast<double>(file.shape.num_chunks)),
                      numbers.at("peak_stage").at(rank));
        }
        json slots = json::object();
        for (const auto& [edge, count] : simulation.recv_slots) {
            slots[NameOf(edge)] = count;
        }
        EXPECT_EQ(slots, numbers.at("recv_slots_per_edge"));
        EXPECT_EQ(json(simulation.recv_slots_max), numbers.at("recv_slots_max"));
    }
}

/// Of a chunk, in tenths; a rank with one chunk does the work of two.
PipelineCosts CostsOf(const PipelineShape& shape, double forward, double backward_input, double backward_weight,
                      double hop) {
    const double scale = 2.0 / shape.num_chunks;
    const StageCosts stage = {.forward = scale * forward,
                              .backward = scale * (backward_input + backward_weight),
                              .backward_input = scale * backward_input,
                              .backward_weight = scale * backward_weight};
    return {.stages = std::vector<StageCosts>(static_cast<size_t>(shape.num_stages()), stage), .hop = hop};
}

TEST(Simulator, MeetsTheGoldenBubblesWithUnequalCostsAndSlowLinks) {
    struct Case {
        std::string name;
        double forward = 10.0;
        double backward_input = 10.0;
        double backward_weight = 10.0;
        double hop = 0.0;
    };
    const json bubbles = GoldenFile().at("P4_M8").at("_sensitivity_makespan_span");
    const std::vector<Case> cases = {
        {.name = "equal"},
        {.name = "equal_comm2", .hop = 2.0},
        {.name = "gpt_like_11_9", .backward_input = 11.0, .backward_weight = 9.0, .hop = 1.0},
        {.name = "recompute_B_20", .backward_input = 20.0, .hop = 1.0},
        {.name = "W_small_6", .backward_input = 12.0, .backward_weight = 6.0, .hop = 1.0},
        {.name = "slow_link_comm5", .hop = 5.0}};
    ASSERT_EQ(bubbles.size(), cases.size());
    const std::vector<GoldenPlan> goldens = GoldenPlans();
    int num_compared = 0;
    for (const Case& each : cases) {
        for (const auto& [name, numbers, file] : goldens) {
            const std::string schedule = name.substr(name.find(' ') + 1);
            if (!name.starts_with("P4_M8 ") || !bubbles.at(each.name).contains(schedule)) {
                continue;
            }
            SCOPED_TRACE(each.name + " " + name);
            const Simulation simulation =
                Simulate(file.shape, file.plans,
                         CostsOf(file.shape, each.forward, each.backward_input, each.backward_weight, each.hop));
            EXPECT_EQ(RoundTo(simulation.bubble_makespan, 4), bubbles.at(each.name).at(schedule).at(0).get<double>());
            EXPECT_EQ(RoundTo(simulation.bubble_span, 4), bubbles.at(each.name).at(schedule).at(1).get<double>());
            ++num_compared;
        }
    }
    EXPECT_EQ(num_compared, 48);
}

// Two ranks, one micro-batch: F0 at 0 to 3, F1 at 3.5 to 4.5, D1 to 9.5, D0 at 10 to 17.
TEST(Simulator, TakesTheCostsOfEachStageAndSaysWhenAnActionCouldHaveBegun) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 1};
    const PipelineCosts costs = {.stages = {{.forward = 3.0, .backward = 7.0}, {.forward = 1.0, .backward = 5.0}},
                                 .hop = 0.5};
    const Simulation simulation = Simulate(shape, PlacedPlans(ScheduleGPipe(), shape), costs);
    EXPECT_EQ(StartsOf(simulation), json::parse("[[0.0, 10.0], [3.5, 4.5]]"));
    EXPECT_EQ(simulation.ranks[0][1].ready, 10.0);
    EXPECT_EQ(simulation.ranks[0][1].end, 17.0);
    EXPECT_EQ(simulation.ranks[1][1].ready, 4.5);
    EXPECT_EQ(simulation.makespan, 17.0);
    EXPECT_EQ(simulation.span, 17.0);
    EXPECT_EQ(simulation.work, (std::vector<double>{10.0, 6.0}));
    EXPECT_EQ(simulation.bubble_makespan, 1.0 - 10.0 / 17.0);
}

TEST(Simulator, GivesAReadyTimeBeforeTheStartToWhatWaitsForItsRank) {
    const PipelineShape shape = {.num_ranks = 1, .num_microbatches = 3};
    const Simulation simulation = Simulate(shape, PlacedPlans(ScheduleGPipe(), shape), {});
    EXPECT_EQ(simulation.ranks[0][2].ready, 0.0);
    EXPECT_EQ(simulation.ranks[0][2].start, 2.0);
    EXPECT_EQ(simulation.ranks[0][4].ready, 2.0);  // D0.1, of F0.1
    EXPECT_EQ(simulation.ranks[0][4].start, 5.0);
}

TEST(Simulator, ShowsNoSlotsAndTakesNoHopBetweenStagesOfOneRank) {
    const PipelineShape shape = {.num_ranks = 1, .num_microbatches = 2, .num_chunks = 3};
    const Simulation simulation = Simulate(shape, PlacedPlans(ScheduleLoopedBFS(), shape), {.hop = 100.0});
    EXPECT_TRUE(simulation.recv_slots.empty());
    EXPECT_EQ(simulation.recv_slots_max, 0);
    EXPECT_EQ(simulation.makespan, 3 * 2 * 3);
    EXPECT_EQ(simulation.bubble_span, 0.0);
}

TEST(SimulatorDeathTest, NamesTheActionThatWaitsForEver) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 1};
    std::vector<ActionList> plans = PlacedPlans(ScheduleGPipe(), shape);
    plans[0].erase(plans[0].begin());
    EXPECT_DEATH(Simulate(shape, plans, {}), "rank 0 waits for ever at D0.0");
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
