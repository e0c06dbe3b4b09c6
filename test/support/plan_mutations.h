#pragma once

#include <functional>
#include <string>
#include <vector>

#include "infini_train/include/nn/parallel/pp/checker.h"

namespace infini_train::test {

/// Plans of all ranks that differ from others in one place.
struct Mutation {
    int rank = 0;
    std::string what = {};  // "rank 1: F1.0 deleted"
    std::vector<nn::parallel::ActionList> plans = {};
};

/// Each action deleted, doubled, and swapped with each later one of its rank.
void ForEachMutation(const nn::parallel::PipelineShape& shape, const std::vector<nn::parallel::ActionList>& plans,
                     const std::function<void(const Mutation&)>& visit);

/// The mutations that CheckPlans takes for a training step: each must run, and give the same numbers.
std::vector<Mutation> ValidMutations(const nn::parallel::PipelineShape& shape,
                                     const std::vector<nn::parallel::ActionList>& plans);

}  // namespace infini_train::test
