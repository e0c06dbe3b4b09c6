#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/core/random.h"
#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// Which random numbers decide: element (n, c) of sample b (row block b of x's first axis) uses Uniform({seed,
/// stream_b}, position in the sample) with stream_b = Combine(Combine(step, layer), first_sample + b). So a mask
/// depends on (seed, step, layer, sample, element) alone, not on how samples are split into micro-batches, and is never
/// stored.
struct DropoutKey {
    uint64_t seed = 0;
    uint64_t step = 0;
    uint64_t layer = 0;         // one number for each dropout of a model
    uint64_t first_sample = 0;  // index in the step of row block 0
};

/// y = u >= p ? x / (1 - p) : 0, u the element's uniform number. 0 <= p < 1. x [B, ...] float32 or bfloat16. Its own
/// backward: the same key on dy gives dx. Returns shape and dtype of x.
using DropoutSig = std::shared_ptr<Tensor>(const Tensor& x, float p, const DropoutKey& key);
inline constinit KernelSlot<DropoutSig> dropout{"dropout"};

namespace cpu {
DropoutSig Dropout;
}  // namespace cpu
namespace cuda {
DropoutSig Dropout;
}  // namespace cuda
namespace meta {
DropoutSig Dropout;
}  // namespace meta

}  // namespace infini_train::kernels
