#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// mean[n] = mean_c x[n, c];  rstd[n] = 1 / sqrt(mean_c((x[n, c] - mean[n])^2) + eps)
/// y[n, c] = (x[n, c] - mean[n]) * rstd[n] * weight[c] + bias[c]
/// x [..., C] float32 or bfloat16; weight, bias [C], dtype of x; eps > 0. Sums run in float32. (Ba et al.,
/// arXiv:1607.06450.)
struct LayerNormOutput {
    std::shared_ptr<Tensor> y;     // [..., C], dtype of x
    std::shared_ptr<Tensor> mean;  // [N], float32; saved for the backward
    std::shared_ptr<Tensor> rstd;  // [N], float32; saved for the backward
};
using LayerNormForwardSig = LayerNormOutput(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps);
inline constinit KernelSlot<LayerNormForwardSig> layer_norm_forward{"layer_norm_forward"};

/// With g[n, c] = dy[n, c] * weight[c] and h[n, c] = (x[n, c] - mean[n]) * rstd[n]:
/// dx[n, c] = rstd[n] * (g[n, c] - mean_c g[n, c] - h[n, c] * mean_c(g[n, c] * h[n, c]))
/// dweight[c] = sum_n dy[n, c] * h[n, c];  dbias[c] = sum_n dy[n, c]
/// The sums over rows have the same order whatever the number of threads.
struct LayerNormGrad {
    std::shared_ptr<Tensor> dx;       // [..., C], dtype of x
    std::shared_ptr<Tensor> dweight;  // [C], float32
    std::shared_ptr<Tensor> dbias;    // [C], float32
};
using LayerNormBackwardSig = LayerNormGrad(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                           const Tensor& rstd);
inline constinit KernelSlot<LayerNormBackwardSig> layer_norm_backward{"layer_norm_backward"};

namespace cpu {
LayerNormForwardSig LayerNormForward;
LayerNormBackwardSig LayerNormBackward;
}  // namespace cpu
namespace meta {
LayerNormForwardSig LayerNormForward;
LayerNormBackwardSig LayerNormBackward;
}  // namespace meta

}  // namespace infini_train::kernels
