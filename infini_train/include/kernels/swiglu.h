#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// y = silu(gate) * up, silu(g) = g / (1 + exp(-g))   (Shazeer, arXiv:2002.05202)
/// gate and up of one shape and dtype, float32 or bfloat16; computes in float32. Returns y of the same shape and dtype.
using SwigluForwardSig = std::shared_ptr<Tensor>(const Tensor& gate, const Tensor& up);
inline constinit KernelSlot<SwigluForwardSig> swiglu_forward{"swiglu_forward"};

/// With s = 1 / (1 + exp(-gate)): dgate = dy * up * s * (1 + gate * (1 - s));  dup = dy * gate * s
struct SwigluGrad {
    std::shared_ptr<Tensor> dgate;  // shape and dtype of gate
    std::shared_ptr<Tensor> dup;    // shape and dtype of up
};
using SwigluBackwardSig = SwigluGrad(const Tensor& dy, const Tensor& gate, const Tensor& up);
inline constinit KernelSlot<SwigluBackwardSig> swiglu_backward{"swiglu_backward"};

namespace cpu {
SwigluForwardSig SwigluForward;
SwigluBackwardSig SwigluBackward;
}  // namespace cpu
namespace cuda {
SwigluForwardSig SwigluForward;
SwigluBackwardSig SwigluBackward;
}  // namespace cuda
namespace meta {
SwigluForwardSig SwigluForward;
SwigluBackwardSig SwigluBackward;
}  // namespace meta

}  // namespace infini_train::kernels
