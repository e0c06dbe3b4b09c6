#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "example/common/flags.h"
#include "infini_train/include/checkpoint/hf_model.h"
#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/dropout.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"

namespace infini_train {

/// What a program knows of a model before any rank builds its part. Every rank uses the same one, at the same time.
struct ModelSpec {
    std::string name = {};                                              // for the first line: "gpt2 tiny"
    std::vector<std::string> notes = {};                                // what the user should know of the weights
    std::shared_ptr<const checkpoint::WeightSource> weights = nullptr;  // null: initial values
    std::shared_ptr<const checkpoint::HfModel> hf = nullptr;            // how checkpoints and exports write it
    int num_layers = 0;
    int64_t num_channels = 0;
    int64_t block_size = 0;
    int64_t vocab_size = 0;
    /// Some layers, float32, their parameters allocated but without values.
    std::function<std::shared_ptr<nn::Module>(const nn::parallel::LayerRange& layers,
                                              const std::shared_ptr<nn::DropoutPosition>& position,
                                              const Device& device)>
        build = {};
};

/// Reads the flags, and of a weight file its header.
using ModelFactory = ModelSpec (*)(const ProgramOptions& options);

/// The whole of a program: flags, plan, ranks, training, text. Returns the exit code: 0, 2 for bad input, 1 for what
/// failed while running, with one line on stderr.
int RunProgram(int argc, char** argv, ModelFactory make_model);

}  // namespace infini_train
