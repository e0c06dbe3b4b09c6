#include <cmath>
#include <cstdint>
#include <limits>

#include "infini_train/src/kernels/cuda/flash_attention.h"
#include "infini_train/src/kernels/cuda/flash_attention_tiles.cuh"

// A block has one tile of queries of one head; it passes over the tiles of keys up to its own, keeping a running
// maximum and sum a query (online softmax; Dao, arXiv:2307.08691). Sums run in the order of the keys, whatever the
// grid.

namespace infini_train::kernels::cuda {
namespace {

template <typename T, int kDim>
__global__ void __launch_bounds__(kFlashThreads)
    FlashForwardKernel(const T* qkv, AttentionSizes sizes, float scale, bool packs, T* out, float* lse) {
    using Tile = FlashTile<kDim>;
    extern __shared__ float4 shared[];
    float* const queries = reinterpret_cast<float*>(shared);
    float* const keys = queries + Tile::kHeadFloats;  // then the values of the same positions
    float* const weights = keys + Tile::kHeadFloats;

    const int length = static_cast<int>(sizes.length);
    const int head_dim = static_cast<int>(sizes.head_dim);
    const int64_t width = sizes.row_width();
    const int num_tiles = (length + Tile::kSize - 1) / Tile::kSize;
    const FlashTask task =
        TaskOf(static_cast<int>(blockIdx.x), static_cast<int>(sizes.num_heads), static_cast<int>(sizes.batch_size));
    const int query_tile = num_tiles - 1 - task.tile;  // the longest first, so that the last to finish are short
    const int first_query = query_tile * Tile::kSize;
    const int num_queries = min(Tile::kSize, length - first_query);
    const int64_t kv_head = task.head / sizes.group_size();
    const T* const sample = qkv + task.batch * sizes.length * width;

    LoadTile<T, kDim>(sample + first_query * width + task.head * head_dim, width, num_queries, head_dim, packs,
                      queries);
    float maximum[Tile::kRows];
    float sum[Tile::kRows];  // this thread's part
    typename Tile::HeadRows result;
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
        maximum[i] = -std::numeric_limits<float>::infinity();
        sum[i] = 0.0f;
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) {
            result[i][c] = 0.0f;
        }
    }

    for (int key_tile = 0; key_tile <= query_tile; ++key_tile) {
        const int first_key = key_tile * Tile::kSize;
        const int num_keys = min(Tile::kSize, length - first_key);
        const T* const rows = sample + first_key * width;
        __syncthreads();  // the values and weights of the tile before are used
        LoadTile<T, kDim>(rows + sizes.key_offset(kv_head), width, num_keys, head_dim, packs, keys);
        __syncthreads();
        typename Tile::Scores scores;
        DotRows<kDim>(queries, keys, scores);
#pragma unroll
        for (int i = 0; i < Tile::kRows; ++i) {
            const int query = first_query + ThreadY() * Tile::kRows + i;
            float new_maximum = maximum[i];
#pragma unroll
            for (int j = 0; j < Tile::kRows; ++j) {
                const int key = first_key + ThreadX() + kSide * j;
                // Keys after the last are after every query that counts.
                scores[i][j] = key <= query ? scores[i][j] * scale : -std::numeric_limits<float>::infinity();
                new_maximum = fmaxf(new_maximum, scores[i][j]);
            }
            new_maximum = RowMaximum(new_maximum);
            const float decay = Exp(maximum[i] - new_maximum);
            maximum[i] = new_maximum;
            sum[i] *= decay;
#pragma unroll
            for (int j = 0; j < Tile::kRows; ++j) {
                scores[i][j] = Exp(scores[i][j] - new_maximum);
                sum[i] += scores[i][j];
            }
#pragma unroll
            for (int c = 0; c < Tile::kColumns; ++c) {
                result[i][c] *= decay;
            }
        }
        StoreScores<kDim>(scores, weights);
        __syncthreads();  // the keys are used
        LoadTile<T, kDim>(rows + sizes.value_offset(kv_head), width, num_keys, head_dim, packs, keys);
        __syncthreads();
        AddWeightedRows<kDim>(weights, keys, result);
    }

    float inverse[Tile::kRows];
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
        const float total = RowSum(sum[i]);
        inverse[i] = 1.0f / total;
        const int row = ThreadY() * Tile::kRows + i;
        if (ThreadX() == 0 && row < num_queries) {
            lse[(task.batch * sizes.num_heads + task.head) * sizes.length + first_query + row] =
                maximum[i] + logf(total);
        }
    }
    T* const first_out = out + (task.batch * sizes.length + first_query) * sizes.out_width() + task.head * head_dim;
    StoreRows<T, kDim>(result, inverse, first_out, sizes.out_width(), num_queries, head_dim, packs);
}

__global__ void FillInt32Kernel(int32_t* x, int64_t num_elements, int32_t value) {
    const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < num_elements) {
        x[i] = value;
    }
}

}  // namespace

void FlashForward(const AttentionSizes& sizes, const Tensor& qkv, Tensor& out, Tensor& lse) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(sizes.head_dim));
    DispatchFloat(qkv.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* const x = Elements<T>(qkv);
        T* const y = Elements<T>(out);
        DispatchHeadDim(sizes.head_dim, [&](auto dim) {
            constexpr int kDim = decltype(dim)::value;
            using Tile = FlashTile<kDim>;
            LaunchTiles<kDim>(FlashForwardKernel<T, kDim>, sizes, sizes.num_heads,
                              2 * Tile::kHeadFloats + Tile::kScoreFloats, qkv.device(), x, sizes, scale,
                              HasPacks<T>(sizes.head_dim, x, y), y, lse.data<float>());
        });
    });
}

void FillInt32(Tensor& x, int32_t value) {
    constexpr int kBlock = 128;
    if (x.num_elements() == 0) {
        return;
    }
    FillInt32Kernel<<<static_cast<unsigned>(CeilDiv(x.num_elements(), kBlock)), kBlock, 0, LaunchStream(x.device())>>>(
        x.data<int32_t>(), x.num_elements(), value);
    INFINI_CUDA_CHECK_LAUNCH();
}

}  // namespace infini_train::kernels::cuda
