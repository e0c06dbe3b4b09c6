#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// kernels/gelu.h
std::shared_ptr<Tensor> Gelu(const std::shared_ptr<Tensor>& x);

}  // namespace infini_train::autograd
