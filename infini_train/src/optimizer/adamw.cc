#include "infini_train/include/optimizer/adamw.h"

namespace infini_train::optimizers {

AdamW::AdamW(const TensorList& parameters, const Options& options)
    : Optimizer(parameters, options.lr, options.weight_decay),
      beta1_(options.beta1),
      beta2_(options.beta2),
      eps_(options.eps) {
    AddMoments("m");
    AddMoments("v");
}

void AdamW::Apply(std::span<const kernels::OptimizerParameter> parameters, const Tensor& grad_scale) {
    kernels::adamw_step(grad_scale.device().type, parameters, grad_scale,
                        {.lr = lr(), .beta1 = beta1_, .beta2 = beta2_, .eps = eps_, .step = step()});
}

}  // namespace infini_train::optimizers
