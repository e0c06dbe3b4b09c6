#pragma once

#include <map>
#include <vector>

#include "infini_train/include/nn/parallel/pp/simulator.h"

namespace infini_train::nn::parallel {

/// Simulation::ranks, each as far as it gets: a rank with fewer entries than compute actions waits for ever at the
/// next.
std::vector<std::vector<SimulatedAction>> Play(const PipelineShape& shape, const std::vector<ActionList>& plans,
                                               const PipelineCosts& costs);

/// Simulation::recv_slots, and those of the edges from a rank to itself, which have no hop.
std::map<Edge, int> MostWaiting(const PipelineShape& shape, const std::vector<std::vector<SimulatedAction>>& ranks);

}  // namespace infini_train::nn::parallel
