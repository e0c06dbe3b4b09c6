#include <cmath>
#include <cstdint>

#include "infini_train/src/kernels/cuda/flash_attention.h"
#include "infini_train/src/kernels/cuda/flash_attention_tiles.cuh"

// With p = exp(q . k / sqrt(D) - lse), the softmax again, and delta_i = dout_i . out_i:
//   dv_u = sum_i p_iu dout_i;  ds_iu = p_iu (dout_i . v_u - delta_i);
//   dk_u = sum_i ds_iu q_i / sqrt(D);    dq_i = sum_u ds_iu k_u / sqrt(D)
// One kernel has a tile of keys a block and passes over the queries that see them, of all heads of the group; another
// has a tile of queries a block and passes over the keys. Scores are computed in both: 7 products of tiles instead of
// 5, but each gradient has one writer and one order of sums, without atomics.

namespace infini_train::kernels::cuda {
namespace {

/// The tensors of a call.
template <typename T>
struct BackwardOperands {
    const T* dout;
    const T* qkv;
    const float* lse;
    const float* delta;
    T* dqkv;
    bool packs;
};

/// delta[b, h, t] = sum_d dout[b, t, h, d] out[b, t, h, d]; a warp each.
template <typename T>
__global__ void __launch_bounds__(kFlashThreads)
    DeltaKernel(const T* dout, const T* out, AttentionSizes sizes, bool packs, float* delta) {
    const int64_t row =
        int64_t{blockIdx.x} * (kFlashThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;  // (b, t, h)
    if (row >= sizes.batch_size * sizes.length * sizes.num_heads) {
        return;
    }
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int head_dim = static_cast<int>(sizes.head_dim);
    const T* const a = dout + row * head_dim;
    const T* const b = out + row * head_dim;
    float sum = 0.0f;
    if (packs) {
        constexpr int kPack = Pack<T>::kSize;
        for (int d = lane * kPack; d < head_dim; d += kWarp * kPack) {
            const Pack<T> x = LoadPack(a + d);
            const Pack<T> y = LoadPack(b + d);
#pragma unroll
            for (int e = 0; e < kPack; ++e) {
                sum = fmaf(ToFloat(x.values[e]), ToFloat(y.values[e]), sum);
            }
        }
    } else {
        for (int d = lane; d < head_dim; d += kWarp) {
            sum = fmaf(ToFloat(a[d]), ToFloat(b[d]), sum);
        }
    }
    sum = WarpSum(sum);
    if (lane == 0) {
        const int64_t head = row % sizes.num_heads;
        const int64_t position = row / sizes.num_heads;
        delta[(position / sizes.length * sizes.num_heads + head) * sizes.length + position % sizes.length] = sum;
    }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kFlashThreads)
    KeyValueGradientKernel(BackwardOperands<T> operands, AttentionSizes sizes, float scale) {
    using Tile = FlashTile<kDim>;
    extern __shared__ float4 shared[];
    float* const keys = reinterpret_cast<float*>(shared);
    float* const values = keys + Tile::kHeadFloats;
    float* const queries = values + Tile::kHeadFloats;
    float* const dout = queries + Tile::kHeadFloats;
    float* const weights = dout + Tile::kHeadFloats;  // [key, query]: p, then ds

    const int length = static_cast<int>(sizes.length);
    const int head_dim = static_cast<int>(sizes.head_dim);
    const int64_t width = sizes.row_width();
    const int64_t out_width = sizes.out_width();
    const int num_tiles = (length + Tile::kSize - 1) / Tile::kSize;
    const FlashTask task =
        TaskOf(static_cast<int>(blockIdx.x), static_cast<int>(sizes.num_kv_heads), static_cast<int>(sizes.batch_size));
    const int first_key = task.tile * Tile::kSize;  // the first tile is the longest, as most queries see it
    const int num_keys = min(Tile::kSize, length - first_key);
    const int64_t first_row = task.batch * sizes.length;
    const int64_t key_rows = (first_row + first_key) * width;

    LoadTile<T, kDim>(operands.qkv + key_rows + sizes.key_offset(task.head), width, num_keys, head_dim, operands.packs,
                      keys);
    LoadTile<T, kDim>(operands.qkv + key_rows + sizes.value_offset(task.head), width, num_keys, head_dim,
                      operands.packs, values);
    typename Tile::HeadRows dkeys;
    typename Tile::HeadRows dvalues;
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) {
            dkeys[i][c] = 0.0f;
            dvalues[i][c] = 0.0f;
        }
    }

    const int group_size = static_cast<int>(sizes.group_size());
    for (int member = 0; member < group_size; ++member) {
        const int64_t head = int64_t{task.head} * group_size + member;
        const int64_t first_statistic = (task.batch * sizes.num_heads + head) * sizes.length;
        for (int query_tile = task.tile; query_tile < num_tiles; ++query_tile) {
            const int first_query = query_tile * Tile::kSize;
            const int num_queries = min(Tile::kSize, length - first_query);
            __syncthreads();  // queries, dout and weights of the tile before are used
            LoadTile<T, kDim>(operands.qkv + (first_row + first_query) * width + head * head_dim, width, num_queries,
                              head_dim, operands.packs, queries);
            LoadTile<T, kDim>(operands.dout + (first_row + first_query) * out_width + head * head_dim, out_width,
                              num_queries, head_dim, operands.packs, dout);
            __syncthreads();
            typename Tile::Scores p;
            typename Tile::Scores ds;
            DotRows<kDim>(keys, queries, p);
            DotRows<kDim>(values, dout, ds);
#pragma unroll
            for (int j = 0; j < Tile::kRows; ++j) {
                const int query = first_query + ThreadX() + kSide * j;
                const bool exists = query < length;
                const float lse = exists ? operands.lse[first_statistic + query] : 0.0f;
                const float delta = exists ? operands.delta[first_statistic + query] : 0.0f;
#pragma unroll
                for (int i = 0; i < Tile::kRows; ++i) {
                    const int key = first_key + ThreadY() * Tile::kRows + i;
                    // Keys after the last are after every query that exists.
                    p[i][j] = exists && key <= query ? Exp(fmaf(p[i][j], scale, -lse)) : 0.0f;
                    ds[i][j] = exists && key <= query ? p[i][j] * (ds[i][j] - delta) : 0.0f;
                }
            }
            StoreScores<kDim>(p, weights);
            __syncthreads();
            AddWeightedRows<kDim>(weights, dout, dvalues);
            __syncthreads();  // p is used
            StoreScores<kDim>(ds, weights);
            __syncthreads();
            AddWeightedRows<kDim>(weights, queries, dkeys);
        }
    }

    float scales[Tile::kRows];
    float ones[Tile::kRows];
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
        scales[i] = scale;
        ones[i] = 1.0f;
    }
    StoreRows<T, kDim>(dkeys, scales, operands.dqkv + key_rows + sizes.key_offset(task.head), width, num_keys, head_dim,
                       operands.packs);
    StoreRows<T, kDim>(dvalues, ones, operands.dqkv + key_rows + sizes.value_offset(task.head), width, num_keys,
                       head_dim, operands.packs);
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kFlashThreads)
    QueryGradientKernel(BackwardOperands<T> operands, AttentionSizes sizes, float scale) {
    using Tile = FlashTile<kDim>;
    extern __shared__ float4 shared[];
    float* const queries = reinterpret_cast<float*>(shared);
    float* const dout = queries + Tile::kHeadFloats;
    float* const keys = dout + Tile::kHeadFloats;
    float* const values = keys + Tile::kHeadFloats;
    float* const weights = values + Tile::kHeadFloats;  // [query, key]: ds

    const int length = static_cast<int>(sizes.length);
    const int head_dim = static_cast<int>(sizes.head_dim);
    const int64_t width = sizes.row_width();
    const int64_t out_width = sizes.out_width();
    const int num_tiles = (length + Tile::kSize - 1) / Tile::kSize;
    const FlashTask task =
        TaskOf(static_cast<int>(blockIdx.x), static_cast<int>(sizes.num_heads), static_cast<int>(sizes.batch_size));
    const int query_tile = num_tiles - 1 - task.tile;  // the longest first
    const int first_query = query_tile * Tile::kSize;
    const int num_queries = min(Tile::kSize, length - first_query);
    const int64_t kv_head = task.head / sizes.group_size();
    const int64_t first_row = task.batch * sizes.length;
    const int64_t query_rows = (first_row + first_query) * width + int64_t{task.head} * head_dim;

    LoadTile<T, kDim>(operands.qkv + query_rows, width, num_queries, head_dim, operands.packs, queries);
    LoadTile<T, kDim>(operands.dout + (first_row + first_query) * out_width + int64_t{task.head} * head_dim, out_width,
                      num_queries, head_dim, operands.packs, dout);
    float lse[Tile::kRows];
    float delta[Tile::kRows];
    float scales[Tile::kRows];
    typename Tile::HeadRows dqueries;
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
        const int row = ThreadY() * Tile::kRows + i;
        const int64_t statistic = (task.batch * sizes.num_heads + task.head) * sizes.length + first_query + row;
        lse[i] = row < num_queries ? operands.lse[statistic] : 0.0f;
        delta[i] = row < num_queries ? operands.delta[statistic] : 0.0f;
        scales[i] = scale;
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) {
            dqueries[i][c] = 0.0f;
        }
    }

    for (int key_tile = 0; key_tile <= query_tile; ++key_tile) {
        const int first_key = key_tile * Tile::kSize;
        const int num_keys = min(Tile::kSize, length - first_key);
        const T* const rows = operands.qkv + (first_row + first_key) * width;
        __syncthreads();  // the keys and weights of the tile before are used
        LoadTile<T, kDim>(rows + sizes.key_offset(kv_head), width, num_keys, head_dim, operands.packs, keys);
        LoadTile<T, kDim>(rows + sizes.value_offset(kv_head), width, num_keys, head_dim, operands.packs, values);
        __syncthreads();
        typename Tile::Scores p;
        typename Tile::Scores ds;
        DotRows<kDim>(queries, keys, p);
        DotRows<kDim>(dout, values, ds);
#pragma unroll
        for (int i = 0; i < Tile::kRows; ++i) {
            const int row = ThreadY() * Tile::kRows + i;
#pragma unroll
            for (int j = 0; j < Tile::kRows; ++j) {
                const int key = first_key + ThreadX() + kSide * j;
                const bool seen = row < num_queries && key <= first_query + row;
                ds[i][j] = seen ? Exp(fmaf(p[i][j], scale, -lse[i])) * (ds[i][j] - delta[i]) : 0.0f;
            }
        }
        StoreScores<kDim>(ds, weights);
        __syncthreads();
        AddWeightedRows<kDim>(weights, keys, dqueries);
    }
    StoreRows<T, kDim>(dqueries, scales, operands.dqkv + query_rows, width, num_queries, head_dim, operands.packs);
}

}  // namespace

void FlashBackward(const AttentionSizes& sizes, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                   const Tensor& lse, Tensor& dqkv) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(sizes.head_dim));
    const auto delta = Tensor::Empty(lse.shape(), DataType::kFloat32, qkv.device());
    DispatchFloat(qkv.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* const result = Elements<T>(out);
        const BackwardOperands<T> operands{
            .dout = Elements<T>(dout),
            .qkv = Elements<T>(qkv),
            .lse = lse.data<float>(),
            .delta = delta->data<float>(),
            .dqkv = Elements<T>(dqkv),
            .packs = HasPacks<T>(sizes.head_dim, Elements<T>(dout), result, Elements<T>(qkv), Elements<T>(dqkv))};
        const int num_blocks = CeilDiv(lse.num_elements(), kFlashThreads / kWarp);
        DeltaKernel<T><<<static_cast<unsigned>(num_blocks), kFlashThreads, 0, LaunchStream(qkv.device())>>>(
            operands.dout, result, sizes, operands.packs, delta->data<float>());
        INFINI_CUDA_CHECK_LAUNCH();
        DispatchHeadDim(sizes.head_dim, [&](auto dim) {
            constexpr int kDim = decltype(dim)::value;
            constexpr int kSharedFloats = 4 * FlashTile<kDim>::kHeadFloats + FlashTile<kDim>::kScoreFloats;
            LaunchTiles<kDim>(KeyValueGradientKernel<T, kDim>, sizes, sizes.num_kv_heads, kSharedFloats, qkv.device(),
                              operands, sizes, scale);
            LaunchTiles<kDim>(QueryGradientKernel<T, kDim>, sizes, sizes.num_heads, kSharedFloats, qkv.device(),
                              operands, sizes, scale);
        });
    });
}

}  // namespace infini_train::kernels::cuda
