#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// rstd[n] = 1 / sqrt(mean_c(x[n, c]^2) + eps);  y[n, c] = x[n, c] * rstd[n] * weight[c]
/// x [..., C] float32 or bfloat16; weight [C], dtype of x; eps > 0. Sums run in float32. (Zhang and Sennrich,
/// arXiv:1910.07467.)
struct RmsNormOutput {
    std::shared_ptr<Tensor> y;     // [..., C], dtype of x
    std::shared_ptr<Tensor> rstd;  // [N], float32; saved for the backward
};
using RmsNormForwardSig = RmsNormOutput(const Tensor& x, const Tensor& weight, float eps);
inline constinit KernelSlot<RmsNormForwardSig> rms_norm_forward{"rms_norm_forward"};

/// With g[n, c] = dy[n, c] * weight[c] and h[n, c] = x[n, c] * rstd[n]:
/// dx[n, c] = rstd[n] * (g[n, c] - h[n, c] * mean_c(g[n, c] * h[n, c]));  dweight[c] = sum_n dy[n, c] * h[n, c]
/// The sum over rows has the same order whatever the number of threads.
struct RmsNormGrad {
    std::shared_ptr<Tensor> dx;       // [..., C], dtype of x
    std::shared_ptr<Tensor> dweight;  // [C], float32
};
using RmsNormBackwardSig = RmsNormGrad(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd);
inline constinit KernelSlot<RmsNormBackwardSig> rms_norm_backward{"rms_norm_backward"};

namespace cpu {
RmsNormForwardSig RmsNormForward;
RmsNormBackwardSig RmsNormBackward;
}  // namespace cpu
namespace meta {
RmsNormForwardSig RmsNormForward;
RmsNormBackwardSig RmsNormBackward;
}  // namespace meta

}  // namespace infini_train::kernels
