#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/attention.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// Rotary position embedding on packed QKV (Su et al., arXiv:2104.09864), pairs interleaved as in LLaMA's own files:
/// for every query and key head and j < D / 2, with (c, s) = angles[t, j]:
///   y[2j] = x[2j] c - x[2j + 1] s;  y[2j + 1] = x[2j] s + x[2j + 1] c
/// Value heads are copied. qkv as in attention.h; angles [>= T, D / 2, 2] float32: the cosine and sine of t *
/// frequency_j. inverse: rotates by -t, which is the backward. Computes in float32. Returns shape and dtype of qkv.
using RotarySig = std::shared_ptr<Tensor>(const Tensor& qkv, const Tensor& angles, const AttentionHeads& heads,
                                          bool inverse);
inline constinit KernelSlot<RotarySig> rotary{"rotary"};

namespace cpu {
RotarySig Rotary;
}  // namespace cpu
namespace cuda {
RotarySig Rotary;
}  // namespace cuda
namespace meta {
RotarySig Rotary;
}  // namespace meta

}  // namespace infini_train::kernels
