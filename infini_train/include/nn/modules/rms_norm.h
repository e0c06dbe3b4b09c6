#pragma once

#include <cstdint>
#include <string>

#include "infini_train/include/nn/module.h"

namespace infini_train::nn {

/// kernels/rms_norm.h. Parameter: weight [dim], starts at 1.
/// Forward: {x [..., dim]} -> {y [..., dim]}, or for the residual stream {x, branch or null} -> {sum, y}: the sum is
/// what goes on, y its norm.
class RmsNorm : public Module {
 public:
    struct Options {
        int64_t dim = 0;
        float eps = 1e-5f;
    };
    RmsNorm(const Options& options, const Device& device);

    TensorList Forward(const TensorList& inputs) override;

 protected:
    void InitializeOwn(uint64_t seed, const std::string& prefix) override;

 private:
    float eps_;
    ParameterSlot weight_;
};

}  // namespace infini_train::nn
