#include "infini_train/include/optimizer/adamw.h"

namespace infini_train::optimizers {

AdamW::AdamW(const TensorList& parameters, const Options& options)
    : AdamW(DecayGroups(parameters, options.weight_decay), options) {}

AdamW::AdamW(const std::vector<ParameterGroup>& groups, const Options& options)
    : Optimizer(groups, options.lr), beta1_(options.beta1), beta2_(options.beta2), eps_(options.eps) {
    AddMoments("m");
    AddMoments("v");
}

void AdamW::Apply(std::span<const kernels::OptimizerParameter> parameters, const Tensor& grad_scale, float lr) {
    kernels::adamw_step(grad_scale.device().type, parameters, grad_scale,
                        {.lr = lr, .beta1 = beta1_, .beta2 = beta2_, .eps = eps_, .step = step()});
}

}  // namespace infini_train::optimizers
