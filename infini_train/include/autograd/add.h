#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// kernels/add.h: y = a + b
std::shared_ptr<Tensor> Add(const std::shared_ptr<Tensor>& a, const std::shared_ptr<Tensor>& b);

}  // namespace infini_train::autograd
