#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"

namespace infini_train::optimizers {

struct GradScale {
    std::shared_ptr<Tensor> norm;   // [1] float32: global L2 norm of the gradient of the mean loss, before clipping
    std::shared_ptr<Tensor> scale;  // [1] float32: what Optimizer::Step takes
};

/// From gradients of the summed loss, over the parameters that have one, in the order of the list: a tensor that is
/// used twice must have its gradients added first. num_valid [1] int64: targets in the sum. max_norm 0: no clipping.
/// The formula is that of kernels::grad_scale. Nothing waits for the device.
GradScale ComputeGradScale(const TensorList& parameters, const Tensor& num_valid, float max_norm);

}  // namespace infini_train::optimizers
