#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// kernels/linear.h. weight and bias are leaves; bias may be null. The gradients of leaf weights go through the
/// backward pass's WeightGradQueue.
std::shared_ptr<Tensor> Linear(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& weight,
                               const std::shared_ptr<Tensor>& bias);

}  // namespace infini_train::autograd
