#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "example/common/flags.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/dropout.h"

namespace infini_train {

/// What the common training loop needs to know of a model, its weights in place.
struct Model {
    std::string name = {};                // for the first line: "gpt2 tiny"
    std::vector<std::string> notes = {};  // what the user should know of the weights
    std::shared_ptr<nn::Module> net = nullptr;
    std::shared_ptr<nn::DropoutPosition> dropout_position = nullptr;
    int64_t block_size = 0;
    int64_t vocab_size = 0;
};

/// Builds a model from the flags on a device, float32.
using ModelFactory = Model (*)(const ProgramOptions& options, const Device& device);

/// The whole of a program: flags, model, training, text. Returns the exit code: 0, 2 for bad input, 1 for what failed
/// while running, with one line on stderr.
int RunProgram(int argc, char** argv, ModelFactory make_model);

}  // namespace infini_train
