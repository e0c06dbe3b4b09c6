#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::autograd {

/// y = Linear(gelu(Linear(x, up)), down), with gelu part of both products: forward it reads the sums of the first,
/// backward it takes what the second sends back (linear_gelu_forward and linear_backward_input_gelu of
/// kernels/linear.h). All four are leaves; a bias may be null. Their gradients go through the backward pass's
/// WeightGradQueue: those of down first.
struct GeluMlpParameters {
    std::shared_ptr<Tensor> up_weight;    // [hidden, in]
    std::shared_ptr<Tensor> up_bias;      // [hidden]
    std::shared_ptr<Tensor> down_weight;  // [out, hidden]
    std::shared_ptr<Tensor> down_bias;    // [out]
};
std::shared_ptr<Tensor> GeluMlp(const std::shared_ptr<Tensor>& x, const GeluMlpParameters& parameters);

}  // namespace infini_train::autograd
