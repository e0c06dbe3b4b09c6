#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "glog/logging.h"

#include "infini_train/include/kernels/attention.h"
#include "infini_train/src/kernels/cpu/attention_blocks.h"
#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

// One task is one key/value head of one sample with all query heads of its group, so that each gradient has one writer
// and one order of sums. It takes the blocks of keys one by one: their dk and dv are summed in scratch over the heads
// and query blocks that see them, and each query block's dq grows by this block's part.
//
// With p = exp(q . k / sqrt(D) - lse), the softmax again, and delta_i = dout_i . out_i:
//   dv_u = sum_i p_iu dout_i;  ds_iu = p_iu (dout_i . v_u - delta_i) / sqrt(D);
//   dk_u = sum_i ds_iu q_i;    dq_i = sum_u ds_iu k_u

namespace infini_train::kernels::cpu {
namespace {

/// What a thread keeps between products.
struct BackwardScratch {
    BackwardScratch(int64_t packed_dim, int64_t num_dq_floats)
        : memory(kBlockRows * (8 * packed_dim + 2 * kBlockRows) + num_dq_floats),
          keys(memory.Take(kBlockRows * packed_dim)),
          keys_transposed(memory.Take(kBlockRows * packed_dim)),
          values_transposed(memory.Take(kBlockRows * packed_dim)),
          queries(memory.Take(kBlockRows * packed_dim)),
          dout(memory.Take(kBlockRows * packed_dim)),
          dq_part(memory.Take(kBlockRows * packed_dim)),
          dk(memory.Take(kBlockRows * packed_dim)),
          dv(memory.Take(kBlockRows * packed_dim)),
          weights(memory.Take(kBlockRows * kBlockRows)),
          dscores(memory.Take(kBlockRows * kBlockRows)),
          dq(memory.Take(num_dq_floats)) {}

    AttentionScratch memory;
    float* keys;               // [key, D]
    float* keys_transposed;    // [D, key]
    float* values_transposed;  // [D, key]
    float* queries;            // [query, D]
    float* dout;               // [query, D]
    float* dq_part;            // [query, D]
    float* dk;                 // [key, D]
    float* dv;                 // [key, D]
    float* weights;            // [query, key]: scores, then p
    float* dscores;            // [query, key]: dout . v, then ds
    float* dq;                 // [T, group, D], where the result cannot hold float32 sums
};

/// A query head: T rows from its first query.
template <typename T>
struct QueryHead {
    const T* queries;
    const T* dout;
    const float* lse;
    const float* delta;
    Rows<float> dq;
};

/// p and ds of a block from its scores and dout . v.
void WeighScores(const float* lse, const float* delta, float scale, int num_queries, int num_keys, bool diagonal,
                 BackwardScratch& scratch) {
    for (int i = 0; i < num_queries; ++i) {
        float* const weight = scratch.weights + i * kBlockRows;
        float* const dscore = scratch.dscores + i * kBlockRows;
        const int last = diagonal ? i : num_keys - 1;
        const float row_lse = lse[i];
        const float row_delta = delta[i];
        // To the end of a vector, as the product did: what follows `last` is read as a zero.
#pragma omp simd
        for (int u = 0; u < (last / kVectorFloats + 1) * kVectorFloats; ++u) {
            const float p = Exp(weight[u] * scale - row_lse);
            const float ds = p * (dscore[u] - row_delta) * scale;
            weight[u] = u <= last ? p : 0.0f;
            dscore[u] = u <= last ? ds : 0.0f;
        }
    }
}

/// Adds to dk, dv and dq what one block of queries of one head and the block of keys in scratch give.
template <typename T>
void BackwardBlock(const QueryHead<T>& head, const AttentionSizes& sizes, int64_t query_block, int64_t key_block,
                   BackwardScratch& scratch) {
    const int64_t head_dim = sizes.head_dim;
    const int64_t packed_dim = sizes.packed_dim();
    const int num_queries = sizes.rows_of_block(query_block);
    const int num_keys = sizes.rows_of_block(key_block);
    const int64_t position = query_block * kBlockRows;
    const bool diagonal = query_block == key_block;
    LoadRows(head.queries + position * sizes.row_width(), sizes.row_width(), num_queries, head_dim,
             {scratch.queries, packed_dim});
    LoadRows(head.dout + position * sizes.num_heads * head_dim, sizes.num_heads * head_dim, num_queries, head_dim,
             {scratch.dout, packed_dim});
    for (int i = 0; i < num_queries; i += kTileRows) {
        const int end = diagonal ? std::min(i + kTileRows, num_keys) : num_keys;
        MultiplyStrip({scratch.queries + i * packed_dim, packed_dim, 1}, {scratch.keys_transposed, kBlockRows},
                      {scratch.weights + i * kBlockRows, kBlockRows}, 0, end, head_dim, false);
        MultiplyStrip({scratch.dout + i * packed_dim, packed_dim, 1}, {scratch.values_transposed, kBlockRows},
                      {scratch.dscores + i * kBlockRows, kBlockRows}, 0, end, head_dim, false);
    }
    WeighScores(head.lse + position, head.delta + position, 1.0f / std::sqrt(static_cast<float>(head_dim)), num_queries,
                num_keys, diagonal, scratch);
    for (int u = 0; u < num_keys; u += kTileRows) {
        const int first = diagonal ? u : 0;
        const int64_t first_weight = first * kBlockRows + u;
        MultiplyStrip({scratch.weights + first_weight, 1, kBlockRows}, {scratch.dout + first * packed_dim, packed_dim},
                      {scratch.dv + u * packed_dim, packed_dim}, 0, head_dim, num_queries - first, true);
        MultiplyStrip({scratch.dscores + first_weight, 1, kBlockRows},
                      {scratch.queries + first * packed_dim, packed_dim}, {scratch.dk + u * packed_dim, packed_dim}, 0,
                      head_dim, num_queries - first, true);
    }
    for (int i = 0; i < num_queries; i += kTileRows) {
        const int depth = diagonal ? std::min(i + kTileRows, num_keys) : num_keys;
        MultiplyStrip({scratch.dscores + i * kBlockRows, kBlockRows, 1}, {scratch.keys, packed_dim},
                      {scratch.dq_part + i * packed_dim, packed_dim}, 0, head_dim, depth, false);
    }
    for (int i = 0; i < num_queries; ++i) {
        const float* const part = scratch.dq_part + i * packed_dim;
        float* const dq = head.dq.data + (position + i) * head.dq.stride;
#pragma omp simd
        for (int64_t d = 0; d < head_dim; ++d) {
            dq[d] = key_block == 0 ? part[d] : dq[d] + part[d];
        }
    }
}

template <typename T>
void StoreRows(const float* packed, int64_t packed_stride, int64_t num_rows, int64_t width, T* to, int64_t stride) {
    for (int64_t row = 0; row < num_rows; ++row) {
#pragma omp simd
        for (int64_t d = 0; d < width; ++d) {
            Store(packed[row * packed_stride + d], to[row * stride + d]);
        }
    }
}

/// The tensors of a call.
template <typename T>
struct BackwardOperands {
    const T* dout;
    const T* qkv;
    const float* lse;
    const float* delta;
    T* dqkv;
};

/// dq goes straight to a float32 result; a narrower one would round each partial sum.
template <typename T>
constexpr bool kSumsInResult = std::is_same_v<T, float>;

template <typename T>
void BackwardGroup(const BackwardOperands<T>& operands, const AttentionSizes& sizes, int64_t batch, int64_t kv_head,
                   BackwardScratch& scratch) {
    const int64_t head_dim = sizes.head_dim;
    const int64_t packed_dim = sizes.packed_dim();
    const int64_t width = sizes.row_width();
    const int64_t group_size = sizes.group_size();
    const int64_t sample = batch * sizes.length * width;
    const int64_t first_query = sample + kv_head * group_size * head_dim;
    const int64_t first_key = sample + (sizes.num_heads + kv_head) * head_dim;
    const int64_t first_value = first_key + sizes.num_kv_heads * head_dim;
    const auto query_head = [&](int64_t member) {
        const int64_t head = kv_head * group_size + member;
        const int64_t row = (batch * sizes.num_heads + head) * sizes.length;
        QueryHead<T> result{.queries = operands.qkv + first_query + member * head_dim,
                            .dout = operands.dout + (batch * sizes.length * sizes.num_heads + head) * head_dim,
                            .lse = operands.lse + row,
                            .delta = operands.delta + row,
                            .dq = {scratch.dq + member * head_dim, group_size * head_dim}};
        if constexpr (kSumsInResult<T>) {
            result.dq = {operands.dqkv + first_query + member * head_dim, width};
        }
        return result;
    };
    for (int64_t key_block = 0; key_block < sizes.num_blocks(); ++key_block) {
        const int num_keys = sizes.rows_of_block(key_block);
        const int64_t offset = key_block * kBlockRows * width;
        // The values by way of the keys' place.
        LoadRows(operands.qkv + first_value + offset, width, num_keys, head_dim, {scratch.keys, packed_dim});
        Transpose({scratch.keys, packed_dim}, num_keys, head_dim, scratch.values_transposed);
        LoadRows(operands.qkv + first_key + offset, width, num_keys, head_dim, {scratch.keys, packed_dim});
        Transpose({scratch.keys, packed_dim}, num_keys, head_dim, scratch.keys_transposed);
        std::fill_n(scratch.dk, kBlockRows * packed_dim, 0.0f);
        std::fill_n(scratch.dv, kBlockRows * packed_dim, 0.0f);
        for (int64_t member = 0; member < group_size; ++member) {
            const QueryHead<T> head = query_head(member);
            for (int64_t query_block = key_block; query_block < sizes.num_blocks(); ++query_block) {
                BackwardBlock(head, sizes, query_block, key_block, scratch);
            }
        }
        StoreRows(scratch.dk, packed_dim, num_keys, head_dim, operands.dqkv + first_key + offset, width);
        StoreRows(scratch.dv, packed_dim, num_keys, head_dim, operands.dqkv + first_value + offset, width);
    }
    if constexpr (!kSumsInResult<T>) {
        StoreRows(scratch.dq, group_size * head_dim, sizes.length, group_size * head_dim, operands.dqkv + first_query,
                  width);
    }
}

template <typename T>
void Backward(const BackwardOperands<T>& operands, const AttentionSizes& sizes) {
    const int64_t num_tasks = sizes.batch_size * sizes.num_kv_heads;
    const int64_t num_dq_floats = kSumsInResult<T> ? 0 : sizes.length * sizes.group_size() * sizes.head_dim;
#pragma omp parallel if (num_tasks > 1 && sizes.is_large())
    {
        BackwardScratch scratch(sizes.packed_dim(), num_dq_floats);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < num_tasks; ++task) {
            BackwardGroup(operands, sizes, task / sizes.num_kv_heads, task % sizes.num_kv_heads, scratch);
        }
    }
}

/// delta[b, h, t] = sum_d dout[b, t, h, d] out[b, t, h, d]
template <typename T>
void SumProducts(const T* dout, const T* out, const AttentionSizes& sizes, float* delta) {
    const int64_t num_rows = sizes.batch_size * sizes.length;
#pragma omp parallel for if (sizes.is_large())
    for (int64_t row = 0; row < num_rows; ++row) {
        for (int64_t head = 0; head < sizes.num_heads; ++head) {
            const int64_t first = (row * sizes.num_heads + head) * sizes.head_dim;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t d = 0; d < sizes.head_dim; ++d) {
                sum += static_cast<float>(dout[first + d]) * static_cast<float>(out[first + d]);
            }
            delta[(row / sizes.length * sizes.num_heads + head) * sizes.length + row % sizes.length] = sum;
        }
    }
}

}  // namespace

std::shared_ptr<Tensor> AttentionBackward(const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                                          const AttentionHeads& heads, bool /*deterministic*/) {
    const AttentionSizes sizes = CheckedAttentionSizes("attention_backward", qkv, heads);
    const Shape out_shape{sizes.batch_size, sizes.length, sizes.num_heads * sizes.head_dim};
    for (const Tensor* tensor : {&dout, &out}) {
        CHECK(tensor->shape() == out_shape && tensor->dtype() == qkv.dtype())
            << "attention_backward: " << ToString(tensor->shape()) << " " << Name(tensor->dtype()) << ", wanted "
            << ToString(out_shape) << " " << Name(qkv.dtype());
    }
    const Shape lse_shape{sizes.batch_size, sizes.num_heads, sizes.length};
    CHECK(lse.shape() == lse_shape) << "attention_backward: lse " << ToString(lse.shape()) << ", wanted "
                                    << ToString(lse_shape);
    const auto delta = Tensor::Empty(lse_shape, DataType::kFloat32, qkv.device());
    auto dqkv = Tensor::Empty(qkv.shape(), qkv.dtype(), qkv.device());
    DispatchFloat(qkv.dtype(), [&](auto zero) {
        using T = decltype(zero);
        SumProducts(dout.data<T>(), out.data<T>(), sizes, delta->data<float>());
        Backward<T>({.dout = dout.data<T>(),
                     .qkv = qkv.data<T>(),
                     .lse = lse.data<float>(),
                     .delta = delta->data<float>(),
                     .dqkv = dqkv->data<T>()},
                    sizes);
    });
    return dqkv;
}

}  // namespace infini_train::kernels::cpu
