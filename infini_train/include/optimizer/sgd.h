#pragma once

#include <span>
#include <vector>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train::optimizers {

/// Gradient descent, with momentum or plain; the formula is that of kernels::sgd_step. Moments "momentum", none when
/// plain.
class Sgd : public Optimizer {
 public:
    struct Options {
        float lr = 0.0f;  // set_lr changes it
        float momentum = 0.0f;
        float weight_decay = 0.0f;  // of a list: see DecayGroups. Groups have their own
    };

    Sgd(const TensorList& parameters, const Options& options);
    Sgd(const std::vector<ParameterGroup>& groups, const Options& options);

 protected:
    void Apply(std::span<const kernels::OptimizerParameter> parameters, const Tensor& grad_scale, float lr) override;

 private:
    float momentum_;
};

}  // namespace infini_train::optimizers
