#pragma once

#include "infini_train/include/core/tensor.h"

namespace infini_train::kernels::cuda {

/// y[n, o] = sums[n, o] + bias[o], for what no product could do on the way.
/// sums [..., O] float32; bias [O] and y [..., O] float32 or bfloat16.
void AddBias(const Tensor& sums, const Tensor& bias, Tensor& y);

}  // namespace infini_train::kernels::cuda
