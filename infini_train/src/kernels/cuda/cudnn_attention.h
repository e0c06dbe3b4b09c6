#pragma once

#include "infini_train/include/core/tensor.h"
#include "infini_train/src/kernels/cuda/flash_attention.h"

namespace infini_train::kernels::cuda {

/// Attention by cuDNN, for bfloat16 tensors as in kernels/attention.h. Both return false, with nothing done, for what
/// it does not serve; its lse is that of our own kernels, so that each pass may go either way. Written before main by
/// cudnn_attention.cc, never again; null in a build without cuDNN.
struct CudnnAttention {
    bool (*forward)(const AttentionSizes& sizes, const Tensor& qkv, Tensor& out, Tensor& lse) = nullptr;
    bool (*backward)(const AttentionSizes& sizes, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                     const Tensor& lse, bool deterministic, Tensor& dqkv) = nullptr;
};
inline constinit CudnnAttention cudnn_attention = {};

}  // namespace infini_train::kernels::cuda
