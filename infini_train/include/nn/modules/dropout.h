#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/nn/module.h"

namespace infini_train::nn {

/// Which micro-batch a model is computing: with the seed, all that its random masks depend on. One for a model, shared
/// by its Dropout modules; the training loop sets step and first_sample before each micro-batch.
struct DropoutPosition {
    uint64_t seed = 0;
    uint64_t step = 0;
    uint64_t first_sample = 0;  // index in the step of the micro-batch's first row
    bool training = true;       // false: Dropout passes its input through
};

/// kernels/dropout.h
/// Forward: {x [B, ...]} -> {x with a share p set to 0 and the rest scaled by 1 / (1 - p)}
class Dropout : public Module {
 public:
    struct Options {
        float p = 0.0f;
        uint64_t layer = 0;  // a number of its own for each Dropout of a model
        std::shared_ptr<const DropoutPosition> position = nullptr;
    };
    explicit Dropout(const Options& options);

    TensorList Forward(const TensorList& inputs) override;

 private:
    Options options_;
};

}  // namespace infini_train::nn
