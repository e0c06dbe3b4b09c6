#include "infini_train/include/nn/parallel/pp/timeline.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "glog/logging.h"

namespace infini_train::nn::parallel {
namespace {

using Cost = double StageCosts::*;

constexpr std::array<Cost, 4> kCosts = {&StageCosts::forward, &StageCosts::backward, &StageCosts::backward_input,
                                        &StageCosts::backward_weight};
constexpr StageCosts kNothing = {.forward = 0.0, .backward = 0.0, .backward_input = 0.0, .backward_weight = 0.0};

Cost CostOf(ActionKind kind) {
    switch (kind) {
        case ActionKind::kForward:
            return &StageCosts::forward;
        case ActionKind::kBackward:
            return &StageCosts::backward;
        case ActionKind::kBackwardInput:
            return &StageCosts::backward_input;
        case ActionKind::kBackwardWeight:
            return &StageCosts::backward_weight;
        case ActionKind::kReceive:
            break;
    }
    LOG(FATAL) << "a timeline has compute actions only";
}

}  // namespace

Timeline SimulatedTimeline(const Simulation& simulation) {
    Timeline timeline;
    for (const std::vector<SimulatedAction>& actions : simulation.ranks) {
        std::vector<TimelineEvent>& events = timeline.emplace_back();
        double free_ms = 0.0;
        for (const SimulatedAction& each : actions) {
            events.push_back({each.action, free_ms, each.start, each.end});
            free_ms = each.end;
        }
    }
    return timeline;
}

double MakespanMs(const Timeline& timeline) {
    double makespan_ms = 0.0;
    for (const std::vector<TimelineEvent>& events : timeline) {
        makespan_ms = std::max(makespan_ms, events.empty() ? 0.0 : events.back().end_ms);
    }
    return makespan_ms;
}

std::vector<RankUse> RankUses(const Timeline& timeline) {
    const double makespan_ms = MakespanMs(timeline);
    std::vector<RankUse> uses;
    for (const std::vector<TimelineEvent>& events : timeline) {
        RankUse use;
        for (const TimelineEvent& event : events) {
            use.work_ms += event.end_ms - event.start_ms;
            use.wait_ms += event.start_ms - event.wait_begin_ms;
        }
        use.bubble = makespan_ms > 0.0 ? 1.0 - use.work_ms / makespan_ms : 0.0;
        uses.push_back(use);
    }
    return uses;
}

PipelineCosts MeasuredCosts(const PipelineShape& shape, const Timeline& timeline) {
    CHECK_EQ(timeline.size(), static_cast<size_t>(shape.num_ranks)) << "ranks of the timeline";
    const auto num_stages = static_cast<size_t>(shape.num_stages());
    std::vector<StageCosts> sums(num_stages, kNothing);
    std::vector<StageCosts> counts(num_stages, kNothing);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (const TimelineEvent& event : timeline[static_cast<size_t>(rank)]) {
            const auto stage = static_cast<size_t>(shape.StageOf(rank, event.action.chunk));
            const Cost cost = CostOf(event.action.kind);
            sums[stage].*cost += event.end_ms - event.start_ms;
            counts[stage].*cost += 1.0;
        }
    }
    for (size_t stage = 0; stage < num_stages; ++stage) {
        for (const Cost cost : kCosts) {
            sums[stage].*cost /= std::max(1.0, counts[stage].*cost);
        }
    }
    return {.stages = sums, .hop = 0.0};
}

}  // namespace infini_train::nn::parallel
