#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// y = a + b. a and b of one shape and dtype, float32 or bfloat16; so is y.
using AddSig = std::shared_ptr<Tensor>(const Tensor& a, const Tensor& b);
inline constinit KernelSlot<AddSig> add{"add"};

namespace cpu {
AddSig Add;
}  // namespace cpu
namespace cuda {
AddSig Add;
}  // namespace cuda
namespace meta {
AddSig Add;
}  // namespace meta

}  // namespace infini_train::kernels
