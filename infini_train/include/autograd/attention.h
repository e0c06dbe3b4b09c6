#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/attention.h"

namespace infini_train::autograd {

/// kernels/attention.h
std::shared_ptr<Tensor> Attention(const std::shared_ptr<Tensor>& qkv, const kernels::AttentionHeads& heads);

}  // namespace infini_train::autograd
