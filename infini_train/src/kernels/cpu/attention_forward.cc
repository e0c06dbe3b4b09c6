#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "glog/logging.h"

#include "infini_train/include/kernels/attention.h"
#include "infini_train/src/kernels/cpu/attention_blocks.h"
#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

// One task is one block of queries of one head; it passes over the keys up to its own block, keeping a running maximum
// and sum a query (online softmax). Scores are held transposed, [key, query]: queries are the vector lanes, so the
// softmax has no sums across lanes, and only the queries are transposed, once a task.

namespace infini_train::kernels::cpu {
namespace {

/// What a thread keeps between products.
struct ForwardScratch {
    explicit ForwardScratch(int64_t packed_dim)
        : memory(kBlockRows * (4 * packed_dim + kBlockRows + 4)),
          queries(memory.Take(kBlockRows * packed_dim)),
          keys(memory.Take(kBlockRows * packed_dim)),
          values(memory.Take(kBlockRows * packed_dim)),
          out(memory.Take(kBlockRows * packed_dim)),
          scores(memory.Take(kBlockRows * kBlockRows)),
          maximum(memory.Take(kBlockRows)),
          sum(memory.Take(kBlockRows)),
          new_maximum(memory.Take(kBlockRows)),
          decay(memory.Take(kBlockRows)) {}

    AttentionScratch memory;
    float* queries;  // [D, query]
    float* keys;     // [key, D]
    float* values;   // [key, D]
    float* out;      // [query, D], not yet divided by the sum
    float* scores;   // [key, query]; then exp(score - maximum)
    float* maximum;  // [query]
    float* sum;      // [query]
    float* new_maximum;
    float* decay;  // exp(old maximum - new maximum)
};

/// Scores of a block of keys become weights; maximum, sum and decay follow. On the diagonal block key u takes part for
/// queries i >= u.
void UpdateSoftmax(float scale, int num_keys, int num_queries, bool diagonal, ForwardScratch& scratch) {
    float* const maximum = scratch.maximum;
    float* const new_maximum = scratch.new_maximum;
    float* const sum = scratch.sum;
    float* const decay = scratch.decay;
    std::copy(maximum, maximum + num_queries, new_maximum);
    for (int u = 0; u < num_keys; ++u) {
        float* const score = scratch.scores + u * kBlockRows;
        const int first = diagonal ? u : 0;
        // From the start of a vector, as the product did: the weights of earlier queries become zeros there.
#pragma omp simd
        for (int i = first / kVectorFloats * kVectorFloats; i < num_queries; ++i) {
            const float scaled = i < first ? -std::numeric_limits<float>::infinity() : score[i] * scale;
            score[i] = scaled;
            new_maximum[i] = new_maximum[i] < scaled ? scaled : new_maximum[i];
        }
    }
#pragma omp simd
    for (int i = 0; i < num_queries; ++i) {
        decay[i] = Exp(maximum[i] - new_maximum[i]);
        maximum[i] = new_maximum[i];
        sum[i] *= decay[i];
    }
    for (int u = 0; u < num_keys; ++u) {
        float* const score = scratch.scores + u * kBlockRows;
#pragma omp simd
        for (int i = (diagonal ? u : 0) / kVectorFloats * kVectorFloats; i < num_queries; ++i) {
            score[i] = Exp(score[i] - maximum[i]);
            sum[i] += score[i];
        }
    }
}

/// One head of one sample: T rows of qkv from its first query, key and value.
template <typename T>
struct HeadInput {
    const T* queries;
    const T* keys;
    const T* values;
    int64_t stride;
};

template <typename T>
void AttendBlock(const HeadInput<T>& head, const AttentionSizes& sizes, int64_t query_block, ForwardScratch& scratch) {
    const int64_t head_dim = sizes.head_dim;
    const int64_t packed_dim = sizes.packed_dim();
    const int num_queries = sizes.rows_of_block(query_block);
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    // By way of the keys' place, which is free until the first block of keys.
    LoadRows(head.queries + query_block * kBlockRows * head.stride, head.stride, num_queries, head_dim,
             {scratch.keys, packed_dim});
    Transpose({scratch.keys, packed_dim}, num_queries, head_dim, scratch.queries);
    std::fill_n(scratch.maximum, num_queries, -std::numeric_limits<float>::infinity());
    std::fill_n(scratch.sum, num_queries, 0.0f);
    for (int64_t key_block = 0; key_block <= query_block; ++key_block) {
        const bool diagonal = key_block == query_block;
        const int num_keys = sizes.rows_of_block(key_block);
        const int64_t offset = key_block * kBlockRows * head.stride;
        LoadRows(head.keys + offset, head.stride, num_keys, head_dim, {scratch.keys, packed_dim});
        LoadRows(head.values + offset, head.stride, num_keys, head_dim, {scratch.values, packed_dim});
        for (int u = 0; u < num_keys; u += kTileRows) {
            MultiplyStrip({scratch.keys + u * packed_dim, packed_dim, 1}, {scratch.queries, kBlockRows},
                          {scratch.scores + u * kBlockRows, kBlockRows}, diagonal ? u : 0, num_queries, head_dim,
                          false);
        }
        UpdateSoftmax(scale, num_keys, num_queries, diagonal, scratch);
        for (int i = 0; i < num_queries; i += kTileRows) {
            float* const out = scratch.out + i * packed_dim;
            for (int row = 0; row < kTileRows && key_block > 0; ++row) {
                const float decay = scratch.decay[i + row];
#pragma omp simd
                for (int64_t d = 0; d < packed_dim; ++d) {
                    out[row * packed_dim + d] *= decay;
                }
            }
            const int depth = diagonal ? std::min(i + kTileRows, num_keys) : num_keys;
            MultiplyStrip({scratch.scores + i, 1, kBlockRows}, {scratch.values, packed_dim}, {out, packed_dim}, 0,
                          head_dim, depth, key_block > 0);
        }
    }
}

/// out and lse of the block that scratch holds; `out` and `lse` point to its first query.
template <typename T>
void StoreBlock(const AttentionSizes& sizes, int num_queries, const ForwardScratch& scratch, T* out, float* lse) {
    for (int i = 0; i < num_queries; ++i) {
        const float inverse = 1.0f / scratch.sum[i];
        const float* const from = scratch.out + i * sizes.packed_dim();
        T* const to = out + i * sizes.num_heads * sizes.head_dim;
#pragma omp simd
        for (int64_t d = 0; d < sizes.head_dim; ++d) {
            Store(from[d] * inverse, to[d]);
        }
        lse[i] = scratch.maximum[i] + std::log(scratch.sum[i]);
    }
}

template <typename T>
void Forward(const T* qkv, const AttentionSizes& sizes, T* out, float* lse) {
    const int64_t num_blocks = sizes.num_blocks();
    const int64_t num_tasks = sizes.batch_size * sizes.num_heads * num_blocks;
#pragma omp parallel if (num_tasks > 1 && sizes.is_large())
    {
        ForwardScratch scratch(sizes.packed_dim());
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < num_tasks; ++task) {
            // The longest block of a head first, so that the last tasks to finish are short.
            const int64_t block = num_blocks - 1 - task % num_blocks;
            const int64_t head = task / num_blocks % sizes.num_heads;
            const int64_t batch = task / num_blocks / sizes.num_heads;
            const int64_t kv_head = head / sizes.group_size();
            const int64_t position = block * kBlockRows;
            const T* const sample = qkv + batch * sizes.length * sizes.row_width();
            const T* const keys = sample + (sizes.num_heads + kv_head) * sizes.head_dim;
            const HeadInput<T> input{.queries = sample + head * sizes.head_dim,
                                     .keys = keys,
                                     .values = keys + sizes.num_kv_heads * sizes.head_dim,
                                     .stride = sizes.row_width()};
            AttendBlock(input, sizes, block, scratch);
            StoreBlock(sizes, sizes.rows_of_block(block), scratch,
                       out + ((batch * sizes.length + position) * sizes.num_heads + head) * sizes.head_dim,
                       lse + (batch * sizes.num_heads + head) * sizes.length + position);
        }
    }
}

}  // namespace

AttentionOutput AttentionForward(const Tensor& qkv, const AttentionHeads& heads) {
    const AttentionSizes sizes = CheckedAttentionSizes("attention_forward", qkv, heads);
    AttentionOutput output{
        .out = Tensor::Empty({sizes.batch_size, sizes.length, sizes.num_heads * sizes.head_dim}, qkv.dtype(),
                             qkv.device()),
        .lse = Tensor::Empty({sizes.batch_size, sizes.num_heads, sizes.length}, DataType::kFloat32, qkv.device())};
    DispatchFloat(qkv.dtype(), [&](auto zero) {
        using T = decltype(zero);
        Forward(qkv.data<T>(), sizes, output.out->data<T>(), output.lse->data<float>());
    });
    return output;
}

}  // namespace infini_train::kernels::cpu
