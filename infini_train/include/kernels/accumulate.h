#pragma once

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// sum = (accumulate ? sum : 0) + x. x float32 or bfloat16; sum float32 of the same shape.
using AccumulateSig = void(const Tensor& x, Tensor& sum, bool accumulate);
inline constinit KernelSlot<AccumulateSig> accumulate{"accumulate"};

namespace cpu {
AccumulateSig Accumulate;
}  // namespace cpu
namespace cuda {
AccumulateSig Accumulate;
}  // namespace cuda
namespace meta {
AccumulateSig Accumulate;
}  // namespace meta

}  // namespace infini_train::kernels
