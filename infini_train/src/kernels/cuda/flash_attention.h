#pragma once

#include <cstdint>

#include "infini_train/include/core/tensor.h"

namespace infini_train::kernels::cuda {

/// The extents of an attention call, none of them 0.
struct AttentionSizes {
    int64_t batch_size;    // B
    int64_t length;        // T
    int64_t num_heads;     // H
    int64_t num_kv_heads;  // K
    int64_t head_dim;      // D

    // Kernels use them, too (constexpr functions are theirs as well).
    constexpr int64_t group_size() const { return num_heads / num_kv_heads; }
    constexpr int64_t row_width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
    constexpr int64_t out_width() const { return num_heads * head_dim; }
    /// Where a key or value head begins in a row of qkv.
    constexpr int64_t key_offset(int64_t kv_head) const { return (num_heads + kv_head) * head_dim; }
    constexpr int64_t value_offset(int64_t kv_head) const { return (num_heads + num_kv_heads + kv_head) * head_dim; }
};

/// Attention by our own kernels: any T, heads of up to 256, float32 or bfloat16, float32 arithmetic. Nothing depends on
/// what else runs, nor a sample's head on other samples and heads. Tensors as in kernels/attention.h. Throws Error for
/// wider heads.
void FlashForward(const AttentionSizes& sizes, const Tensor& qkv, Tensor& out, Tensor& lse);
void FlashBackward(const AttentionSizes& sizes, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                   const Tensor& lse, Tensor& dqkv);

/// Every element of an int32 tensor becomes value, in the order of the device's stream.
void FillInt32(Tensor& x, int32_t value);

}  // namespace infini_train::kernels::cuda
