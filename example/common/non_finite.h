#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/module.h"

namespace infini_train {

struct NonFinite {
    int rank = 0;
    std::string what = {};  // "rank 1: parameter h.3.mlp.c_fc.weight holds nan"; "" where there is none
};

/// After a step whose loss or norm was not finite: the first parameter, of the lowest rank, with a value that is not
/// finite, else with such a gradient. Reads all of them: for the end of a run. Collective over the world; the same on
/// every rank.
NonFinite FindNonFinite(const std::vector<std::shared_ptr<nn::Module>>& chunks, const comm::Mesh& mesh);

}  // namespace infini_train
