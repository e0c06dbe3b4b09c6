#pragma once

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// Every element of x, float32 or bfloat16, becomes value.
using FillSig = void(Tensor& x, float value);
inline constinit KernelSlot<FillSig> fill{"fill"};

namespace cpu {
FillSig Fill;
}  // namespace cpu
namespace cuda {
FillSig Fill;
}  // namespace cuda
namespace meta {
FillSig Fill;
}  // namespace meta

}  // namespace infini_train::kernels
