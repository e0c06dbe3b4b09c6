#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// kernels/layer_norm.h
std::shared_ptr<Tensor> LayerNorm(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& weight,
                                  const std::shared_ptr<Tensor>& bias, float eps);

}  // namespace infini_train::autograd
