#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// kernels/embedding.h. weight is a leaf; its gradient goes through the backward pass's WeightGradQueue.
std::shared_ptr<Tensor> Embedding(const std::shared_ptr<Tensor>& ids, const std::shared_ptr<Tensor>& weight);

}  // namespace infini_train::autograd
