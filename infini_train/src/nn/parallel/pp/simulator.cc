#include "infini_train/include/nn/parallel/pp/simulator.h"

#include <algorithm>
#include <cstddef>

#include "glog/logging.h"

#include "infini_train/src/nn/parallel/pp/play.h"

namespace infini_train::nn::parallel {
namespace {

void CheckEnded(const PipelineShape& shape, int rank, const ActionList& plan, size_t num_played) {
    size_t num_compute = 0;
    for (const Action& action : plan) {
        if (action.kind != ActionKind::kReceive && num_compute++ == num_played) {
            LOG(FATAL) << "rank " << rank << " waits for ever at " << ToString(action, shape, rank);
        }
    }
}

int PeakChunks(const std::vector<SimulatedAction>& played) {
    int held = 0;
    int peak = 0;
    for (const SimulatedAction& each : played) {
        const ActionKind kind = each.action.kind;
        held += kind == ActionKind::kForward ? 1 : 0;
        peak = std::max(peak, held);
        held -= kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight ? 1 : 0;
    }
    return peak;
}

}  // namespace

double StageCosts::Of(ActionKind kind) const {
    switch (kind) {
        case ActionKind::kForward:
            return forward;
        case ActionKind::kBackward:
            return backward;
        case ActionKind::kBackwardInput:
            return backward_input;
        case ActionKind::kBackwardWeight:
            return backward_weight;
        case ActionKind::kReceive:
            break;
    }
    return 0.0;
}

Simulation Simulate(const PipelineShape& shape, const std::vector<ActionList>& plans, const PipelineCosts& costs) {
    Simulation simulation;
    simulation.ranks = Play(shape, plans, costs);
    for (size_t rank = 0; rank < plans.size(); ++rank) {
        const std::vector<SimulatedAction>& played = simulation.ranks[rank];
        CheckEnded(shape, static_cast<int>(rank), plans[rank], played.size());
        double& work = simulation.work.emplace_back(0.0);
        for (const SimulatedAction& each : played) {
            work += each.end - each.start;
        }
        simulation.peak_chunks.push_back(PeakChunks(played));
        if (!played.empty()) {
            simulation.makespan = std::max(simulation.makespan, played.back().end);
            simulation.span = std::max(simulation.span, played.back().end - played.front().start);
        }
    }
    const double most_work = *std::max_element(simulation.work.begin(), simulation.work.end());
    if (most_work > 0.0) {
        simulation.bubble_makespan = 1.0 - most_work / simulation.makespan;
        simulation.bubble_span = 1.0 - most_work / simulation.span;
    }
    for (const auto& [edge, slots] : MostWaiting(shape, simulation.ranks)) {
        if (edge.from != edge.to) {
            simulation.recv_slots[edge] = slots;
            simulation.recv_slots_max = std::max(simulation.recv_slots_max, slots);
        }
    }
    return simulation;
}

}  // namespace infini_train::nn::parallel
