#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// H query heads share K key/value heads: query head h reads key/value head h / (H / K). K divides H.
struct AttentionHeads {
    int num_heads = 0;     // H
    int num_kv_heads = 0;  // K
};
/// The size D of a head in packed qkv [..., (H + 2 K) D]. CHECKs that H and K are positive, that K divides H and that
/// the last axis is a multiple of H + 2 K.
int64_t HeadDim(const Tensor& qkv, const AttentionHeads& heads);

/// Causal attention: for each batch b, query head h and position t, over positions u <= t:
///   out[b, t, h, :] = sum_u softmax_u(q[b, t, h, :] . k[b, u, h', :] / sqrt(D)) v[b, u, h', :],  h' = h / (H / K)
/// qkv [B, T, (H + 2 K) D] float32 or bfloat16: each row is the H query heads, then the K key heads, then the K value
/// heads. Computes in float32, block by block: no T x T matrix is held. (Dao, arXiv:2307.08691.)
struct AttentionOutput {
    std::shared_ptr<Tensor> out;  // [B, T, H D], dtype of qkv
    std::shared_ptr<Tensor> lse;  // [B, H, T], float32: log sum_u exp(q . k / sqrt(D)); saved for the backward
};
using AttentionForwardSig = AttentionOutput(const Tensor& qkv, const AttentionHeads& heads);
inline constinit KernelSlot<AttentionForwardSig> attention_forward{"attention_forward"};

/// dqkv [B, T, (H + 2 K) D], dtype of qkv, from dout [B, T, H D] and what the forward saved. Key and value gradients
/// are summed over the heads of a group and over positions in an order that does not depend on the number of threads,
/// nor on anything else unless deterministic is false: then a device may use a faster way whose order is not fixed.
using AttentionBackwardSig = std::shared_ptr<Tensor>(const Tensor& dout, const Tensor& qkv, const Tensor& out,
                                                     const Tensor& lse, const AttentionHeads& heads,
                                                     bool deterministic);
inline constinit KernelSlot<AttentionBackwardSig> attention_backward{"attention_backward"};

namespace cpu {
AttentionForwardSig AttentionForward;
AttentionBackwardSig AttentionBackward;
}  // namespace cpu
namespace cuda {
AttentionForwardSig AttentionForward;
AttentionBackwardSig AttentionBackward;
}  // namespace cuda
namespace meta {
AttentionForwardSig AttentionForward;
AttentionBackwardSig AttentionBackward;
}  // namespace meta

}  // namespace infini_train::kernels
