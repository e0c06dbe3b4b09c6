#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// The norm of the residual stream, to which a branch is added on the way:
/// sum[n, c] = x[n, c] + branch[n, c], rounded to the dtype of x; sum = x without a branch
/// mean[n] = mean_c sum[n, c];  rstd[n] = 1 / sqrt(mean_c((sum[n, c] - mean[n])^2) + eps)
/// y[n, c] = (sum[n, c] - mean[n]) * rstd[n] * weight[c] + bias[c]
/// x [..., C] float32 or bfloat16; branch null or as x; weight, bias [C], dtype of x; eps > 0. Sums run in float32. The
/// same bits as add and then this without a branch. (Ba et al., arXiv:1607.06450.)
struct LayerNormOutput {
    std::shared_ptr<Tensor> sum;   // [..., C], dtype of x; null without a branch
    std::shared_ptr<Tensor> y;     // [..., C], dtype of x
    std::shared_ptr<Tensor> mean;  // [N], float32; saved for the backward
    std::shared_ptr<Tensor> rstd;  // [N], float32; saved for the backward
};
using LayerNormForwardSig = LayerNormOutput(const Tensor& x, const Tensor* branch, const Tensor& weight,
                                            const Tensor& bias, float eps);
inline constinit KernelSlot<LayerNormForwardSig> layer_norm_forward{"layer_norm_forward"};

/// With g[n, c] = dy[n, c] * weight[c] and h[n, c] = (sum[n, c] - mean[n]) * rstd[n]:
/// dx[n, c] = dsum[n, c] + rstd[n] * (g[n, c] - mean_c g[n, c] - h[n, c] * mean_c(g[n, c] * h[n, c])), rounded once,
/// which is the gradient of the branch, too
/// dweight[c] = sum_n dy[n, c] * h[n, c];  dbias[c] = sum_n dy[n, c]
/// dsum, shape and dtype of dy, is what else depends on the sum; null: nothing. The sums over rows have the same order
/// whatever the number of threads.
struct LayerNormGrad {
    std::shared_ptr<Tensor> dx;       // [..., C], dtype of x
    std::shared_ptr<Tensor> dweight;  // [C], float32
    std::shared_ptr<Tensor> dbias;    // [C], float32
};
using LayerNormBackwardSig = LayerNormGrad(const Tensor& dy, const Tensor* dsum, const Tensor& sum,
                                           const Tensor& weight, const Tensor& mean, const Tensor& rstd);
inline constinit KernelSlot<LayerNormBackwardSig> layer_norm_backward{"layer_norm_backward"};

namespace cpu {
LayerNormForwardSig LayerNormForward;
LayerNormBackwardSig LayerNormBackward;
}  // namespace cpu
namespace cuda {
LayerNormForwardSig LayerNormForward;
LayerNormBackwardSig LayerNormBackward;
}  // namespace cuda
namespace meta {
LayerNormForwardSig LayerNormForward;
LayerNormBackwardSig LayerNormBackward;
}  // namespace meta

}  // namespace infini_train::kernels
