#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"

namespace infini_train::nn::parallel::test {
namespace {

using nlohmann::json;

std::vector<json> EventsOf(const std::string& trace, const std::string& phase) {
    const json parsed = json::parse(trace);
    std::vector<json> events;
    for (const json& event : parsed.at("traceEvents")) {
        EXPECT_EQ(event.at("pid"), 1);
        if (event.at("ph") == phase) {
            events.push_back(event);
        }
    }
    return events;
}

PipelineShape Shape(int num_ranks, int num_microbatches, int num_chunks, std::vector<int> rank_of_stage = {}) {
    return {.num_ranks = num_ranks,
            .num_microbatches = num_microbatches,
            .num_chunks = num_chunks,
            .rank_of_stage = std::move(rank_of_stage)};
}

/// A step of a schedule whose forwards take 1.5 ms, whose backwards 3.25 ms, and a message 0.125 ms.
Timeline StepOf(const PipelineShape& shape, const std::string& schedule) {
    const auto planner = MakeSchedule(schedule);
    std::vector<ActionList> plans;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        plans.push_back(planner->Plan(shape, rank));
    }
    const StageCosts costs = {.forward = 1.5, .backward = 3.25};
    return SimulatedTimeline(
        Simulate(shape, plans,
                 {.stages = std::vector<StageCosts>(static_cast<size_t>(shape.num_stages()), costs), .hop = 0.125}));
}

TEST(ChromeTrace, HasEachActionWithItsTimesAndPlace) {
    const PipelineShape shape = Shape(2, 3, 2);
    const Timeline timeline = StepOf(shape, "interleaved");
    std::map<std::string, json> slices;
    for (const json& slice : EventsOf(ChromeTrace(shape, timeline), "X")) {
        if (slice.at("cat") != "wait") {
            EXPECT_TRUE(slices.emplace(slice.at("name"), slice).second) << slice;
        }
    }
    EXPECT_EQ(slices.size(), 2u * 4 * 3);
    for (int rank = 0; rank < 2; ++rank) {
        for (const TimelineEvent& event : timeline[static_cast<size_t>(rank)]) {
            const int stage = shape.StageOf(rank, event.action.chunk);
            const bool is_forward = event.action.kind == ActionKind::kForward;
            const json slice = slices.at(StrCat(is_forward ? "F" : "D", stage, ".", event.action.microbatch));
            EXPECT_EQ(slice.at("tid"), rank);
            EXPECT_EQ(slice.at("cat"), is_forward ? "forward" : "backward");
            EXPECT_EQ(slice.at("ts"), event.start_ms * 1000.0);
            EXPECT_EQ(slice.at("dur"), is_forward ? 1500 : 3250);
            EXPECT_EQ(slice.at("args"), (json{{"stage", stage},
                                              {"chunk", event.action.chunk},
                                              {"microbatch", event.action.microbatch},
                                              {"wait_ms", event.start_ms - event.wait_begin_ms}}));
        }
    }
}

TEST(ChromeTrace, NamesItsCategories) {
    Timeline timeline(1);
    const std::vector<std::pair<ActionKind, std::string>> kinds = {{ActionKind::kForward, "forward"},
                                                                   {ActionKind::kBackward, "backward"},
                                                                   {ActionKind::kBackwardInput, "backward_input"},
                                                                   {ActionKind::kBackwardWeight, "backward_weight"}};
    for (const auto& [kind, category] : kinds) {
        const double ms = static_cast<double>(timeline[0].size());
        timeline[0].push_back({{.kind = kind}, ms, ms, ms + 1.0});
    }
    const std::vector<json> slices = EventsOf(ChromeTrace(Shape(1, 1, 1), timeline), "X");
    ASSERT_EQ(slices.size(), 4u);  // no waits of no time
    for (size_t i = 0; i < slices.size(); ++i) {
        EXPECT_EQ(slices[i].at("cat"), kinds[i].second);
    }
}

TEST(ChromeTrace, HasAWaitBeforeWhatWasWaitedFor) {
    const PipelineShape shape = Shape(2, 1, 1);
    const std::vector<json> slices = EventsOf(ChromeTrace(shape, StepOf(shape, "gpipe")), "X");
    // F0.0, wait, D0.0; wait, F1.0, D1.0
    ASSERT_EQ(slices.size(), 6u);
    const json& wait = slices[1];
    EXPECT_EQ(wait.at("name"), "wait");
    EXPECT_EQ(wait.at("cat"), "wait");
    EXPECT_EQ(wait.at("tid"), 0);
    EXPECT_EQ(wait.at("ts"), 1500);
    EXPECT_EQ(wait.at("dur"), 125 + 1500 + 3250 + 125);
    EXPECT_EQ(wait.at("args"), (json{{"for", "D0.0"}}));
    EXPECT_EQ(slices[2].at("args").at("wait_ms"), 5.0);
    EXPECT_EQ(slices[3].at("name"), "wait");
    EXPECT_EQ(slices[3].at("ts"), 0);
    EXPECT_EQ(slices[3].at("dur"), 1625);
}

TEST(ChromeTrace, NeverOverlapsOnARank) {
    // Times between microseconds, each action where the one before it ends.
    Timeline timeline(1);
    for (int m = 0; m < 50; ++m) {
        timeline[0].push_back({{.microbatch = m}, m * 0.0017, m * 0.0017 + 0.0008, (m + 1) * 0.0017});
    }
    int64_t free = 0;
    for (const json& slice : EventsOf(ChromeTrace(Shape(1, 50, 1), timeline), "X")) {
        ASSERT_TRUE(slice.at("ts").is_number_integer() && slice.at("dur").is_number_integer());
        EXPECT_EQ(slice.at("ts"), free);  // without a gap either
        free += slice.at("dur").get<int64_t>();
    }
    EXPECT_EQ(free, 85);
}

TEST(ChromeTrace, NamesProcessAndRanks) {
    const std::vector<json> names = EventsOf(ChromeTrace(Shape(2, 7, 1), {{}, {}}), "M");
    std::set<std::tuple<std::string, int, std::string>> found;
    for (const json& each : names) {
        found.emplace(each.at("name"), each.at("tid"), each.at("args").begin().value().dump());
    }
    EXPECT_EQ(found,
              (std::set<std::tuple<std::string, int, std::string>>{{"process_name", 0, "\"pipeline, 7 micro-batches\""},
                                                                   {"thread_name", 0, "\"rank 0\""},
                                                                   {"thread_name", 1, "\"rank 1\""},
                                                                   {"thread_sort_index", 0, "0"},
                                                                   {"thread_sort_index", 1, "1"}}));
}

struct End {
    std::string name;
    int rank = 0;
    int64_t ts = 0;
};

std::map<int, End> EndsOf(const std::string& trace, const std::string& phase) {
    std::map<int, End> ends;
    for (const json& each : EventsOf(trace, phase)) {
        EXPECT_EQ(each.at("cat"), "message");
        EXPECT_TRUE(ends.emplace(each.at("id"), End{each.at("name"), each.at("tid"), each.at("ts")}).second);
    }
    return ends;
}

/// The action that runs on a rank at a time: "F0.1". Ends do not belong to an action, starts do.
std::string SliceAt(const std::string& trace, const End& end) {
    for (const json& slice : EventsOf(trace, "X")) {
        const auto begin = slice.at("ts").get<int64_t>();
        if (slice.at("tid") == end.rank && begin <= end.ts && end.ts < begin + slice.at("dur").get<int64_t>()) {
            return slice.at("name");
        }
    }
    return "none";
}

/// "F0.1>F1.1", all there are.
std::set<std::string> ArrowsOf(const std::string& trace) {
    const std::map<int, End> begins = EndsOf(trace, "s");
    const std::map<int, End> ends = EndsOf(trace, "f");
    EXPECT_EQ(begins.size(), ends.size());
    std::set<std::string> arrows;
    for (const auto& [id, begin] : begins) {
        const End& end = ends.at(id);
        EXPECT_EQ(begin.name, end.name);
        EXPECT_LT(begin.ts, end.ts);
        const std::string from = SliceAt(trace, begin);
        EXPECT_EQ(begin.name, from[0] == 'F' ? "activation" : "gradient");
        arrows.insert(StrCat(from, ">", SliceAt(trace, end)));
    }
    return arrows;
}

TEST(ChromeTrace, HasAnArrowForEachMessage) {
    const PipelineShape shape = Shape(2, 2, 2);  // next and previous rank are one
    EXPECT_EQ(ArrowsOf(ChromeTrace(shape, StepOf(shape, "interleaved"))),
              (std::set<std::string>{"F0.0>F1.0", "F1.0>F2.0", "F2.0>F3.0", "D3.0>D2.0", "D2.0>D1.0", "D1.0>D0.0",
                                     "F0.1>F1.1", "F1.1>F2.1", "F2.1>F3.1", "D3.1>D2.1", "D2.1>D1.1", "D1.1>D0.1"}));
}

TEST(ChromeTrace, HasArrowsOfInputGradientsBetweenRanksOnly) {
    // Stages 1 and 2 are on one rank, and what a W needs is, too.
    const PipelineShape shape = Shape(2, 1, 2, {0, 1, 1, 0});
    const auto event = [](ActionKind kind, int chunk, double start_ms) -> TimelineEvent {
        return {{.kind = kind, .chunk = chunk}, start_ms, start_ms, start_ms + 0.5};
    };
    constexpr ActionKind kF = ActionKind::kForward;
    constexpr ActionKind kB = ActionKind::kBackwardInput;
    constexpr ActionKind kW = ActionKind::kBackwardWeight;
    const Timeline timeline = {
        {event(kF, 0, 0.0), event(kF, 1, 3.0), event(kB, 1, 4.0), event(kW, 1, 5.0), event(kB, 0, 7.0)},
        {event(kF, 0, 1.0), event(kF, 1, 2.0), event(kB, 1, 5.0), event(kB, 0, 6.0), event(kW, 0, 7.0)}};
    EXPECT_EQ(ArrowsOf(ChromeTrace(shape, timeline)),
              (std::set<std::string>{"F0.0>F1.0", "F2.0>F3.0", "B3.0>B2.0", "B1.0>B0.0"}));
}

TEST(ChromeTrace, HasNoArrowToARankThatIsNotThere) {
    const PipelineShape shape = Shape(3, 2, 1);
    Timeline timeline = StepOf(shape, "1f1b");
    timeline[2].clear();
    EXPECT_EQ(ArrowsOf(ChromeTrace(shape, timeline)),
              (std::set<std::string>{"F0.0>F1.0", "F0.1>F1.1", "D1.0>D0.0", "D1.1>D0.1"}));
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
