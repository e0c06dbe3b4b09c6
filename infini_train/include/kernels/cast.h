#pragma once

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// y = x in the dtype of y. Both float32 or bfloat16, of one shape. Narrowing rounds to nearest even.
using CastSig = void(const Tensor& x, Tensor& y);
inline constinit KernelSlot<CastSig> cast{"cast"};

namespace cpu {
CastSig Cast;
}  // namespace cpu
namespace cuda {
CastSig Cast;
}  // namespace cuda
namespace meta {
CastSig Cast;
}  // namespace meta

}  // namespace infini_train::kernels
