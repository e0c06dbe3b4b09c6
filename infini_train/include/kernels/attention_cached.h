#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/attention.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// Causal attention of T new positions after `start` earlier ones, whose keys and values are kept. Position t of qkv is
/// position n = start + t of the sequence: keys[b, n, :, :] and values[b, n, :, :] become those of qkv[b, t, :], then
///   out[b, t, h, :] = sum_{u <= n} softmax_u(q[b, t, h, :] . keys[b, u, h', :] / sqrt(D)) values[b, u, h', :]
/// with h' = h / (H / K). qkv [B, T, (H + 2 K) D] as in attention.h; keys, values [B, max_T, K, D], dtype and device of
/// qkv, start + T <= max_T: what they hold from position start + T on is neither read nor written. Computes in float32,
/// in an order that the sizes alone decide; with start 0 it has the bits of attention_forward. Has no backward.
/// Returns [B, T, H D], dtype of qkv.
using AttentionCachedSig = std::shared_ptr<Tensor>(const Tensor& qkv, const AttentionHeads& heads, int64_t start,
                                                   Tensor& keys, Tensor& values);
inline constinit KernelSlot<AttentionCachedSig> attention_cached{"attention_cached"};

/// The extents of such a call.
struct CachedAttentionSizes {
    int64_t batch_size = 0;     // B
    int64_t length = 0;         // T
    int64_t start = 0;          // positions before them
    int64_t max_positions = 0;  // max_T
    int64_t num_heads = 0;      // H
    int64_t num_kv_heads = 0;   // K
    int64_t head_dim = 0;       // D

    // Kernels of a GPU use them, too (constexpr functions are theirs as well).
    constexpr int64_t group_size() const { return num_heads / num_kv_heads; }
    constexpr int64_t kv_width() const { return num_kv_heads * head_dim; }
    /// Of qkv: from row to row, and where a row's keys and values begin.
    constexpr int64_t row_width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
    constexpr int64_t key_offset() const { return num_heads * head_dim; }
    constexpr int64_t value_offset() const { return (num_heads + num_kv_heads) * head_dim; }
    /// Of keys and values: where position n of sample b begins.
    constexpr int64_t kept(int64_t b, int64_t n) const { return (b * max_positions + n) * kv_width(); }
};
/// CHECKs shapes, dtypes and start.
CachedAttentionSizes CheckedCachedSizes(const Tensor& qkv, const AttentionHeads& heads, int64_t start,
                                        const Tensor& keys, const Tensor& values);

namespace cpu {
AttentionCachedSig AttentionCached;
}  // namespace cpu
namespace cuda {
AttentionCachedSig AttentionCached;
}  // namespace cuda
namespace meta {
AttentionCachedSig AttentionCached;
}  // namespace meta

}  // namespace infini_train::kernels
