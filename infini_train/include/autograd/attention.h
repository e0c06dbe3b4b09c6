#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/attention.h"

namespace infini_train::autograd {

/// kernels/attention.h. deterministic: of the backward.
std::shared_ptr<Tensor> Attention(const std::shared_ptr<Tensor>& qkv, const kernels::AttentionHeads& heads,
                                  bool deterministic = true);

}  // namespace infini_train::autograd
