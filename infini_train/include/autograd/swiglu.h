#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// kernels/swiglu.h
std::shared_ptr<Tensor> Swiglu(const std::shared_ptr<Tensor>& gate, const std::shared_ptr<Tensor>& up);

}  // namespace infini_train::autograd
