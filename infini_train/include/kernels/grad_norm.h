#pragma once

#include <memory>
#include <span>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// squared_sums[i] = sum of the squares of grads[i], float32 tensors. Each is summed in double in an order that depends
/// on its size alone, then rounded, so that a parameter has the same sum on whatever rank. squared_sums [number of
/// grads] float32.
using SquaredSumsSig = void(std::span<const Tensor* const> grads, Tensor& squared_sums);
inline constinit KernelSlot<SquaredSumsSig> squared_sums{"squared_sums"};

/// norm = sqrt(sum_i squared_sums[i]) / num_valid: the global L2 norm of the gradient of the mean loss, from the
/// squares of the gradients of the summed loss, added in double in their order. scale = min(1, max_norm / (norm +
/// 1e-6)) / num_valid; max_norm 0: no clipping, scale = 1 / num_valid. What the optimizer multiplies with. num_valid 0
/// gives norm 0 and scale 0. A norm that is not finite gives scale NaN, clipped or not, so that the optimizer changes
/// nothing. squared_sums [n] float32; num_valid [1] int64.
struct GradScaleOutput {
    std::shared_ptr<Tensor> norm;   // [1], float32
    std::shared_ptr<Tensor> scale;  // [1], float32
};
using GradScaleSig = GradScaleOutput(const Tensor& squared_sums, const Tensor& num_valid, float max_norm);
inline constinit KernelSlot<GradScaleSig> grad_scale{"grad_scale"};

/// What every device checks of the operands. CHECKs.
void CheckSquaredSums(std::span<const Tensor* const> grads, const Tensor& squared_sums);
void CheckGradScale(const Tensor& squared_sums, const Tensor& num_valid, float max_norm);

namespace cpu {
SquaredSumsSig SquaredSums;
GradScaleSig GradScale;
}  // namespace cpu
namespace cuda {
SquaredSumsSig SquaredSums;
GradScaleSig GradScale;
}  // namespace cuda
namespace meta {
SquaredSumsSig SquaredSums;
GradScaleSig GradScale;
}  // namespace meta

}  // namespace infini_train::kernels
