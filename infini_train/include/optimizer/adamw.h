#pragma once

#include <span>
#include <vector>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train::optimizers {

/// Adam with decoupled weight decay; the formula is that of kernels::adamw_step. Moments "m" and "v".
class AdamW : public Optimizer {
 public:
    struct Options {
        float lr = 0.0f;  // set_lr changes it
        float beta1 = 0.9f;
        float beta2 = 0.95f;
        float eps = 1e-8f;
        float weight_decay = 0.0f;  // of a list: see DecayGroups. Groups have their own
    };

    AdamW(const TensorList& parameters, const Options& options);
    AdamW(const std::vector<ParameterGroup>& groups, const Options& options);

 protected:
    void Apply(std::span<const kernels::OptimizerParameter> parameters, const Tensor& grad_scale, float lr) override;

 private:
    float beta1_;
    float beta2_;
    float eps_;
};

}  // namespace infini_train::optimizers
