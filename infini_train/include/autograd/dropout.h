#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/dropout.h"

namespace infini_train::autograd {

/// kernels/dropout.h. p = 0 returns x.
std::shared_ptr<Tensor> Dropout(const std::shared_ptr<Tensor>& x, float p, const kernels::DropoutKey& key);

}  // namespace infini_train::autograd
