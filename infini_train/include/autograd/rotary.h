#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/attention.h"

namespace infini_train::autograd {

/// kernels/rotary.h. angles needs no gradient.
std::shared_ptr<Tensor> Rotary(const std::shared_ptr<Tensor>& qkv, const std::shared_ptr<Tensor>& angles,
                               const kernels::AttentionHeads& heads);

}  // namespace infini_train::autograd
