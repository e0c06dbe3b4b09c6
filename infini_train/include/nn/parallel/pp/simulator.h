#pragma once

#include <map>
#include <vector>

#include "infini_train/include/nn/parallel/pp/action.h"

namespace infini_train::nn::parallel {

/// Time of each action of a stage on one micro-batch, in any unit.
struct StageCosts {
    double forward = 1.0;
    double backward = 2.0;
    double backward_input = 1.0;
    double backward_weight = 1.0;

    double Of(ActionKind kind) const;  // 0 for kReceive
};

struct PipelineCosts {
    std::vector<StageCosts> stages = {};  // one a stage; empty: 1, and 2 for a whole backward
    double hop = 0.0;                     // from the end of an action to the message at the other rank
};

struct SimulatedAction {
    Action action = {};
    double start = 0.0;
    double end = 0.0;
    double ready = 0.0;  // when what it depends on was there; start - the end of the action before it is a wait
};

/// An edge: messages of one direction from a rank to another.
struct Edge {
    int from = 0;
    int to = 0;
    comm::Direction direction = comm::Direction::kForward;

    auto operator<=>(const Edge&) const = default;
};

struct Simulation {
    std::vector<std::vector<SimulatedAction>> ranks = {};  // compute actions, in the plan's order
    double makespan = 0.0;                                 // until the last action of all ranks has ended
    double span = 0.0;                                     // the longest time from a rank's first action to its last
    std::vector<double> work = {};                         // of each rank: the sum of its actions
    double bubble_makespan = 0.0;                          // 1 - largest work / makespan
    double bubble_span = 0.0;                              // 1 - largest work / span
    std::vector<int> peak_chunks = {};                     // most (chunk, micro-batch) pairs with saved activations
    std::map<Edge, int> recv_slots = {};  // most messages that wait, from their producer's end + hop to their
                                          // consumer's start, both included; edges between different ranks
    int recv_slots_max = 0;
};

/// Runs the plans of all ranks without tensors: an action starts when the one before it on its rank has ended and what
/// it depends on is there: F(s, m) needs F(s - 1, m); D or B (s, m) needs D or B (s + 1, m), the last stage F(s, m);
/// W(s, m) needs B(s, m). Receives take no time. Activations are held from the start of F to the end of D or W. The
/// plans must end: a CHECK names the action that waits for ever (CheckPlans says so as an Error).
Simulation Simulate(const PipelineShape& shape, const std::vector<ActionList>& plans, const PipelineCosts& costs);

}  // namespace infini_train::nn::parallel
