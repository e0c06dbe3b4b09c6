#include "infini_train/include/kernels/attention_cached.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "infini_train/src/kernels/cpu/attention_blocks.h"
#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/fixed_order_sum.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

// One query at a time: with the few that a step of a generation has, reading the cache is all that takes time. What
// begins a sequence goes through the blocks of attention_forward.

namespace infini_train::kernels::cpu {
namespace {

template <typename T>
void KeepRows(const T* qkv, const CachedAttentionSizes& sizes, T* keys, T* values) {
    for (int64_t b = 0; b < sizes.batch_size; ++b) {
        for (int64_t t = 0; t < sizes.length; ++t) {
            const T* const row = qkv + (b * sizes.length + t) * sizes.row_width();
            const int64_t to = sizes.kept(b, sizes.start + t);
            std::copy_n(row + sizes.key_offset(), sizes.kv_width(), keys + to);
            std::copy_n(row + sizes.value_offset(), sizes.kv_width(), values + to);
        }
    }
}

/// What a thread keeps for one query.
struct QueryScratch {
    std::vector<float> query;    // [D], times 1 / sqrt(D)
    std::vector<float> weights;  // [u]: scores, then exp(score - their maximum)
    std::vector<float> out;      // [D]
};

/// keys and values: of position 0, with `stride` elements from position to position.
template <typename T>
void AttendQuery(const T* query, const T* keys, const T* values, int64_t stride, int64_t num_positions,
                 int64_t head_dim, QueryScratch& scratch, T* out) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    float* const q = scratch.query.data();
    float* const weights = scratch.weights.data();
    float* const sums = scratch.out.data();
    for (int64_t d = 0; d < head_dim; ++d) {
        q[d] = static_cast<float>(query[d]) * scale;
        sums[d] = 0.0f;
    }
    float maximum = -std::numeric_limits<float>::infinity();
    for (int64_t u = 0; u < num_positions; ++u) {
        const T* const key = keys + u * stride;
        weights[u] = SumTerms(head_dim, [=](int64_t d) { return q[d] * static_cast<float>(key[d]); });
        maximum = std::max(maximum, weights[u]);
    }
#pragma omp simd
    for (int64_t u = 0; u < num_positions; ++u) {
        weights[u] = Exp(weights[u] - maximum);
    }
    const float inverse = 1.0f / SumTerms(num_positions, [=](int64_t u) { return weights[u]; });
    for (int64_t u = 0; u < num_positions; ++u) {
        const T* const value = values + u * stride;
        const float weight = weights[u];
#pragma omp simd
        for (int64_t d = 0; d < head_dim; ++d) {
            sums[d] += weight * static_cast<float>(value[d]);
        }
    }
#pragma omp simd
    for (int64_t d = 0; d < head_dim; ++d) {
        Store(sums[d] * inverse, out[d]);
    }
}

template <typename T>
void Attend(const T* qkv, const T* keys, const T* values, const CachedAttentionSizes& sizes, T* out) {
    const int64_t num_positions = sizes.start + sizes.length;
    const int64_t num_queries = sizes.batch_size * sizes.length * sizes.num_heads;
    const bool is_large = num_queries * num_positions * sizes.head_dim > kSerialAttentionWork;
#pragma omp parallel if (num_queries > 1 && is_large)
    {
        QueryScratch scratch{.query = std::vector<float>(static_cast<size_t>(sizes.head_dim)),
                             .weights = std::vector<float>(static_cast<size_t>(num_positions)),
                             .out = std::vector<float>(static_cast<size_t>(sizes.head_dim))};
#pragma omp for
        for (int64_t task = 0; task < num_queries; ++task) {
            const int64_t head = task % sizes.num_heads;
            const int64_t row = task / sizes.num_heads;
            const int64_t kept = sizes.kept(row / sizes.length, 0) + head / sizes.group_size() * sizes.head_dim;
            AttendQuery(qkv + row * sizes.row_width() + head * sizes.head_dim, keys + kept, values + kept,
                        sizes.kv_width(), sizes.start + row % sizes.length + 1, sizes.head_dim, scratch,
                        out + task * sizes.head_dim);
        }
    }
}

}  // namespace

std::shared_ptr<Tensor> AttentionCached(const Tensor& qkv, const AttentionHeads& heads, int64_t start, Tensor& keys,
                                        Tensor& values) {
    const CachedAttentionSizes sizes = CheckedCachedSizes(qkv, heads, start, keys, values);
    return DispatchFloat(qkv.dtype(), [&](auto zero) {
        using T = decltype(zero);
        KeepRows(qkv.data<T>(), sizes, keys.data<T>(), values.data<T>());
        if (start == 0) {
            return AttentionForward(qkv, heads).out;
        }
        auto out = Tensor::Empty({sizes.batch_size, sizes.length, sizes.num_heads * sizes.head_dim}, qkv.dtype(),
                                 qkv.device());
        Attend(qkv.data<T>(), keys.data<T>(), values.data<T>(), sizes, out->data<T>());
        return out;
    });
}

}  // namespace infini_train::kernels::cpu
