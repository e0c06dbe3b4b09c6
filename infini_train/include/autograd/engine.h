#pragma once

#include "infini_train/include/autograd/weight_grad_queue.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// Adds to every leaf's gradient: sum_i (d outputs[i] / d leaf)^T grad_outputs[i]. Walks the tape without recursion,
/// later functions first, in an order that depends on the tape alone, and frees it as it goes: a second pass over the
/// same tape is a bug.
///
/// outputs: computed tensors. grad_outputs: shape and dtype of the outputs; null stands for 1, for an output of one
/// element. queue: where linear and embedding leave their weight gradients (W); null: they are computed at once. Leaf
/// gradients are float32 whatever the dtype of the leaf; where a tensor is used twice, its gradients are summed in its
/// dtype.
void Backward(const TensorList& outputs, const TensorList& grad_outputs, WeightGradQueue* queue = nullptr);

}  // namespace infini_train::autograd
