#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/module.h"

namespace infini_train {

/// After a step whose loss or norm was not finite: the first parameter, of the lowest rank, with a value that is not
/// finite, else with such a gradient. "rank 1: parameter h.3.mlp.c_fc.weight holds nan", or "" where there is none.
/// Reads all of them: for the end of a run. Collective over the world; the same text on every rank.
std::string FindNonFinite(const std::vector<std::shared_ptr<nn::Module>>& chunks, const comm::Mesh& mesh);

}  // namespace infini_train
