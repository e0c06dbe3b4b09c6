#include "infini_train/include/optimizer/sgd.h"

namespace infini_train::optimizers {

Sgd::Sgd(const TensorList& parameters, const Options& options)
    : Sgd(DecayGroups(parameters, options.weight_decay), options) {}

Sgd::Sgd(const std::vector<ParameterGroup>& groups, const Options& options)
    : Optimizer(groups, options.lr), momentum_(options.momentum) {
    if (momentum_ != 0.0f) {
        AddMoments("momentum");
    }
}

void Sgd::Apply(std::span<const kernels::OptimizerParameter> parameters, const Tensor& grad_scale, float lr) {
    kernels::sgd_step(grad_scale.device().type, parameters, grad_scale, {.lr = lr, .momentum = momentum_});
}

}  // namespace infini_train::optimizers
