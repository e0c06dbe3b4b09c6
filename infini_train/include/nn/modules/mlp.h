#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/linear.h"

namespace infini_train::nn {

/// The position-wise part of a transformer block.
/// kGelu:   c_proj(gelu(c_fc(x)));               kSwiglu: c_proj(silu(c_fc2(x)) * c_fc(x))
/// Forward: {x [..., dim]} -> {y [..., dim]}
class Mlp : public Module {
 public:
    enum class Activation { kGelu, kSwiglu };
    struct Options {
        int64_t dim = 0;
        int64_t hidden_dim = 0;
        Activation activation = Activation::kGelu;
        bool bias = true;
        float init_stddev = 0.02f;             // of c_fc and c_fc2
        float projection_init_stddev = 0.02f;  // of c_proj, which feeds the residual stream
    };
    Mlp(const Options& options, const Device& device);

    TensorList Forward(const TensorList& inputs) override;

 private:
    std::shared_ptr<Linear> c_fc_;
    std::shared_ptr<Linear> c_fc2_;  // the gate; null without one
    std::shared_ptr<Linear> c_proj_;
};

}  // namespace infini_train::nn
