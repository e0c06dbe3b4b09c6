#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/include/nn/parallel/pp/action.h"
#include "infini_train/include/nn/parallel/pp/simulator.h"

namespace infini_train::nn::parallel {

/// The compute actions of all ranks, as JSON: P, M, V, order and start (at unit costs) by rank, makespan,
/// bubble_makespan_f (6 decimals), peak_stage (peak chunks / V), recv_slots_max; and predicted_bytes by rank, where it
/// is not empty.
std::string PlanJson(const PipelineShape& shape, const std::vector<ActionList>& plans,
                     const std::vector<int64_t>& predicted_bytes);

/// Compute actions by rank.
struct PlanFile {
    PipelineShape shape = {};
    std::vector<ActionList> plans = {};
};

/// Reads P, M, V and order of such a file; who holds a stage is what the order says. Throws Error, naming the file, for
/// what is not such a plan: syntax, sizes, a token, a stage that is on two ranks or on none.
PlanFile ReadPlanFile(const std::string& path);

}  // namespace infini_train::nn::parallel
