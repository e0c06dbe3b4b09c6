#pragma once

#include <functional>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// forward(inputs), keeping for the backward pass only the inputs: what lies between is computed a second time there.
/// (Chen et al., arXiv:1604.06174.) forward must give the same values again; parameters that it uses get their
/// gradients as without Recompute. Where no input requires a gradient nothing is recorded, not even for parameters.
/// The backward pass runs with grad mode on.
using ForwardFunction = std::function<TensorList(const TensorList& inputs)>;
TensorList Recompute(const ForwardFunction& forward, const TensorList& inputs);

}  // namespace infini_train::autograd
