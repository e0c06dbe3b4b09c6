#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// The norm of the residual stream, to which a branch is added on the way:
/// sum[n, c] = x[n, c] + branch[n, c], rounded to the dtype of x; sum = x without a branch
/// rstd[n] = 1 / sqrt(mean_c(sum[n, c]^2) + eps);  y[n, c] = sum[n, c] * rstd[n] * weight[c]
/// x [..., C] float32 or bfloat16; branch null or as x; weight [C], dtype of x; eps > 0. Sums run in float32. The same
/// bits as add and then this without a branch. (Zhang and Sennrich, arXiv:1910.07467.)
struct RmsNormOutput {
    std::shared_ptr<Tensor> sum;   // [..., C], dtype of x; null without a branch
    std::shared_ptr<Tensor> y;     // [..., C], dtype of x
    std::shared_ptr<Tensor> rstd;  // [N], float32; saved for the backward
};
using RmsNormForwardSig = RmsNormOutput(const Tensor& x, const Tensor* branch, const Tensor& weight, float eps);
inline constinit KernelSlot<RmsNormForwardSig> rms_norm_forward{"rms_norm_forward"};

/// With g[n, c] = dy[n, c] * weight[c] and h[n, c] = sum[n, c] * rstd[n]:
/// dx[n, c] = dsum[n, c] + rstd[n] * (g[n, c] - h[n, c] * mean_c(g[n, c] * h[n, c])), rounded once, which is the
/// gradient of the branch, too;  dweight[c] = sum_n dy[n, c] * h[n, c]
/// dsum, shape and dtype of dy, is what else depends on the sum; null: nothing. The sum over rows has the same order
/// whatever the number of threads.
struct RmsNormGrad {
    std::shared_ptr<Tensor> dx;       // [..., C], dtype of x
    std::shared_ptr<Tensor> dweight;  // [C], float32
};
using RmsNormBackwardSig = RmsNormGrad(const Tensor& dy, const Tensor* dsum, const Tensor& sum, const Tensor& weight,
                                       const Tensor& rstd);
inline constinit KernelSlot<RmsNormBackwardSig> rms_norm_backward{"rms_norm_backward"};

namespace cpu {
RmsNormForwardSig RmsNormForward;
RmsNormBackwardSig RmsNormBackward;
}  // namespace cpu
namespace cuda {
RmsNormForwardSig RmsNormForward;
RmsNormBackwardSig RmsNormBackward;
}  // namespace cuda
namespace meta {
RmsNormForwardSig RmsNormForward;
RmsNormBackwardSig RmsNormBackward;
}  // namespace meta

}  // namespace infini_train::kernels
