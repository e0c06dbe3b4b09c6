#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))   (Hendrycks and Gimpel, arXiv:1606.08415, the tanh form)
/// x float32 or bfloat16 of any shape; computes in float32. Returns y, shape and dtype of x.
using GeluForwardSig = std::shared_ptr<Tensor>(const Tensor& x);
inline constinit KernelSlot<GeluForwardSig> gelu_forward{"gelu_forward"};

/// dx = dy * dy/dx of the above. dy and x of one shape and dtype; so is dx.
using GeluBackwardSig = std::shared_ptr<Tensor>(const Tensor& dy, const Tensor& x);
inline constinit KernelSlot<GeluBackwardSig> gelu_backward{"gelu_backward"};

namespace cpu {
GeluForwardSig GeluForward;
GeluBackwardSig GeluBackward;
}  // namespace cpu
namespace cuda {
GeluForwardSig GeluForward;
GeluBackwardSig GeluBackward;
}  // namespace cuda
namespace meta {
GeluForwardSig GeluForward;
GeluBackwardSig GeluBackward;
}  // namespace meta

}  // namespace infini_train::kernels
