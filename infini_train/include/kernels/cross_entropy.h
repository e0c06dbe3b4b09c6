#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// lse[n] = log sum_{v < vocab_size} exp(logits[n, v]);
/// loss_sum = sum over rows with targets[n] != ignore_index of (lse[n] - logits[n, targets[n]]);
/// num_valid = how many those rows are; lse is 0 in the others.
/// logits [..., Vp] float32 or bfloat16; targets [...] int32; 0 < vocab_size <= Vp: the columns from vocab_size on are
/// padding and take no part, whatever they hold. CHECKs that every target is ignore_index or in [0, vocab_size).
/// Exponentials in float32, sums over blocks of columns and over rows in double, in the same order whatever the number
/// of threads.
struct CrossEntropyOptions {
    int64_t vocab_size = 0;
    int32_t ignore_index = -100;
};
struct CrossEntropyOutput {
    std::shared_ptr<Tensor> loss_sum;   // [1], float32
    std::shared_ptr<Tensor> num_valid;  // [1], int64
    std::shared_ptr<Tensor> lse;        // [N], float32; saved for the backward
};
using CrossEntropyForwardSig = CrossEntropyOutput(const Tensor& logits, const Tensor& targets,
                                                  const CrossEntropyOptions& options);
inline constinit KernelSlot<CrossEntropyForwardSig> cross_entropy_forward{"cross_entropy_forward"};

/// dlogits[n, v] = dloss_sum * (exp(logits[n, v] - lse[n]) - [v = targets[n]]) for v < vocab_size; 0 for padding
/// columns and ignored rows. dloss_sum [1] float32. dlogits: shape and dtype of logits, and may be logits itself: the
/// probabilities take their place.
using CrossEntropyBackwardSig = void(const Tensor& dloss_sum, const Tensor& logits, const Tensor& targets,
                                     const Tensor& lse, const CrossEntropyOptions& options, Tensor& dlogits);
inline constinit KernelSlot<CrossEntropyBackwardSig> cross_entropy_backward{"cross_entropy_backward"};

namespace cpu {
CrossEntropyForwardSig CrossEntropyForward;
CrossEntropyBackwardSig CrossEntropyBackward;
}  // namespace cpu
namespace cuda {
CrossEntropyForwardSig CrossEntropyForward;
CrossEntropyBackwardSig CrossEntropyBackward;
}  // namespace cuda
namespace meta {
CrossEntropyForwardSig CrossEntropyForward;
CrossEntropyBackwardSig CrossEntropyBackward;
}  // namespace meta

}  // namespace infini_train::kernels
