#pragma once

#include <span>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// What the micro-batches of a step add up to, in their order: total[0] = the bits of sum_m sums[m] as a double,
/// total[1] = sum_m counts[m]. Each of sums [1] float32, of counts [1] int64; total [2] int64 on their device. No
/// micro-batches: zeros.
using LossTotalSig = void(std::span<const Tensor* const> sums, std::span<const Tensor* const> counts, Tensor& total);
inline constinit KernelSlot<LossTotalSig> loss_total{"loss_total"};

/// mean = sum of totals[r, 0] (doubles) / sum of totals[r, 1], both added in the order of r; 0 without a count.
/// totals [R, 2] int64, each row as loss_total makes it.
struct LossMean {
    std::shared_ptr<Tensor> mean;       // [1], float32
    std::shared_ptr<Tensor> num_valid;  // [1], int64
};
using LossMeanSig = LossMean(const Tensor& totals);
inline constinit KernelSlot<LossMeanSig> loss_mean{"loss_mean"};

namespace cpu {
LossTotalSig LossTotal;
LossMeanSig MeanLoss;
}  // namespace cpu
namespace cuda {
LossTotalSig LossTotal;
LossMeanSig MeanLoss;
}  // namespace cuda
namespace meta {
LossTotalSig LossTotal;
LossMeanSig MeanLoss;
}  // namespace meta

}  // namespace infini_train::kernels
