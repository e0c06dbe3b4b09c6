#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// kernels/rms_norm.h
std::shared_ptr<Tensor> RmsNorm(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& weight, float eps);

}  // namespace infini_train::autograd
