#pragma once

#include <string>

#include "example/common/flags.h"
#include "example/common/model.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"

namespace infini_train {

struct AutoLayout {
    nn::parallel::StageLayout layout = {};
    std::string note = {};  // "embedding 0.2 ms, layer 3.1 ms, head 9.8 ms: layers of the stages 5,5,2"
};

/// --pipeline_layout auto: times one layer, with the embedding and with the head, forward and backward of one
/// micro-batch on as many threads as a rank will have, and spreads the layers so that the slowest stage is fastest.
AutoLayout ChooseLayout(const ProgramOptions& options, const ModelSpec& model, int num_stages, int num_ranks);

}  // namespace infini_train
