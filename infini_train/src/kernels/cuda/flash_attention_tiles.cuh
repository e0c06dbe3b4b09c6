#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "infini_train/include/common/error.h"
#include "infini_train/src/kernels/cuda/flash_attention.h"
#include "infini_train/src/kernels/cuda/launch.cuh"

// What both passes of our own attention are made of: tiles of heads in shared memory, widened to float32, and two
// products of tiles. A block is 16 x 16 threads over a tile of scores; thread (y, x) has the scores of rows y kRows + i
// and columns x + 16 j, and of rows of heads the same rows and columns (16 j + x) kVector + e. Rows of threads are half
// a warp, so that a row's maximum and sum are shuffles.

namespace infini_train::kernels::cuda {

constexpr int kFlashThreads = 256;
constexpr int kSide = 16;

/// Heads of up to kDim, a multiple of 16.
template <int kDim>
struct FlashTile {
    static constexpr int kRows = kDim > 128 ? 2 : 4;  // of a thread; four tiles of heads fit an SM's shared memory
    static constexpr int kSize = kSide * kRows;       // positions
    static constexpr int kColumns = kDim / kSide;     // of a head, of a thread
    static constexpr int kVector = kColumns % 4 == 0 ? 4 : kColumns % 2 == 0 ? 2 : 1;  // that lie side by side
    // Rows of shared memory are whole 16 bytes and begin in different banks.
    static constexpr int kStride = kDim + 4;
    static constexpr int kScoreStride = kSize + 4;
    static constexpr int kHeadFloats = kSize * kStride;
    static constexpr int kScoreFloats = kSize * kScoreStride;

    using Scores = float[kRows][kRows];
    using HeadRows = float[kRows][kColumns];
};

__device__ inline int ThreadX() {
    return static_cast<int>(threadIdx.x) % kSide;
}
__device__ inline int ThreadY() {
    return static_cast<int>(threadIdx.x) / kSide;
}

/// kCount elements, loaded and stored at once.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) SmallVector {
    T values[kCount];
};

/// e^x as 2^(x log2 e): within 2 units in the last place for weights that matter, and 0 for -inf.
__device__ inline float Exp(float x) {
    constexpr float kLog2E = 1.44269504f;
    return exp2f(x * kLog2E);
}

/// tile[row, d] = rows[row, d] in float32; zeros after num_rows and head_dim. packs: rows may be read 16 bytes at a
/// time.
template <typename T, int kDim>
__device__ void LoadTile(const T* rows, int64_t stride, int num_rows, int head_dim, bool packs, float* tile) {
    using Tile = FlashTile<kDim>;
    if (packs) {
        constexpr int kPack = Pack<T>::kSize;
        constexpr int kPacks = kDim / kPack;  // of a row
        for (int i = static_cast<int>(threadIdx.x); i < Tile::kSize * kPacks; i += kFlashThreads) {
            const int row = i / kPacks;
            const int column = i % kPacks * kPack;
            float values[kPack] = {};
            if (row < num_rows && column < head_dim) {
                const Pack<T> pack = LoadPack(rows + row * stride + column);
#pragma unroll
                for (int e = 0; e < kPack; ++e) {
                    values[e] = ToFloat(pack.values[e]);
                }
            }
#pragma unroll
            for (int e = 0; e < kPack; e += 4) {
                *reinterpret_cast<float4*>(tile + row * Tile::kStride + column + e) =
                    make_float4(values[e], values[e + 1], values[e + 2], values[e + 3]);
            }
        }
    } else {
        for (int i = static_cast<int>(threadIdx.x); i < Tile::kSize * kDim; i += kFlashThreads) {
            const int row = i / kDim;
            const int column = i % kDim;
            const bool inside = row < num_rows && column < head_dim;
            tile[row * Tile::kStride + column] = inside ? ToFloat(rows[row * stride + column]) : 0.0f;
        }
    }
}

/// rows[row, d] = values of this thread times a factor a row, for rows below num_rows and d below head_dim.
template <typename T, int kDim>
__device__ void StoreRows(const typename FlashTile<kDim>::HeadRows& values,
                          const float (&factors)[FlashTile<kDim>::kRows], T* rows, int64_t stride, int num_rows,
                          int head_dim, bool packs) {
    using Tile = FlashTile<kDim>;
    constexpr int kVector = Tile::kVector;
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
        const int row = ThreadY() * Tile::kRows + i;
        if (row >= num_rows) {
            return;
        }
#pragma unroll
        for (int first = 0; first < Tile::kColumns; first += kVector) {
            const int column = first * kSide + ThreadX() * kVector;
            SmallVector<T, kVector> vector;
#pragma unroll
            for (int e = 0; e < kVector; ++e) {
                vector.values[e] = FromFloat<T>(values[i][first + e] * factors[i]);
            }
            T* const to = rows + row * stride + column;
            // Packs divide head_dim and vectors divide packs.
            if (packs && column < head_dim) {
                *reinterpret_cast<SmallVector<T, kVector>*>(to) = vector;
            } else if (!packs) {
#pragma unroll
                for (int e = 0; e < kVector; ++e) {
                    if (column + e < head_dim) {
                        to[e] = vector.values[e];
                    }
                }
            }
        }
    }
}

/// dots[i][j] = sum_d a[row i, d] b[row j, d]; a's rows are those of the scores, b's their columns.
template <int kDim>
__device__ void DotRows(const float* a, const float* b, typename FlashTile<kDim>::Scores& dots) {
    using Tile = FlashTile<kDim>;
    constexpr int kRows = Tile::kRows;
    const float* const left = a + ThreadY() * kRows * Tile::kStride;
    const float* const right = b + ThreadX() * Tile::kStride;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
            dots[i][j] = 0.0f;
        }
    }
#pragma unroll 2
    for (int d = 0; d < kDim; d += 4) {
        float4 x[kRows];
        float4 y[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            x[i] = *reinterpret_cast<const float4*>(left + i * Tile::kStride + d);
            y[i] = *reinterpret_cast<const float4*>(right + i * kSide * Tile::kStride + d);
        }
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
            for (int j = 0; j < kRows; ++j) {
                dots[i][j] = fmaf(x[i].x, y[j].x, dots[i][j]);
                dots[i][j] = fmaf(x[i].y, y[j].y, dots[i][j]);
                dots[i][j] = fmaf(x[i].z, y[j].z, dots[i][j]);
                dots[i][j] = fmaf(x[i].w, y[j].w, dots[i][j]);
            }
        }
    }
}

/// sums[row, d] += sum_k weights[row, k] heads[k, d]
template <int kDim>
__device__ void AddWeightedRows(const float* weights, const float* heads, typename FlashTile<kDim>::HeadRows& sums) {
    using Tile = FlashTile<kDim>;
    constexpr int kVector = Tile::kVector;
    const float* const left = weights + ThreadY() * Tile::kRows * Tile::kScoreStride;
    const float* const right = heads + ThreadX() * kVector;
#pragma unroll 2
    for (int k = 0; k < Tile::kSize; k += 4) {
        SmallVector<float, 4> weight[Tile::kRows];
#pragma unroll
        for (int i = 0; i < Tile::kRows; ++i) {
            weight[i] = *reinterpret_cast<const SmallVector<float, 4>*>(left + i * Tile::kScoreStride + k);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
            for (int first = 0; first < Tile::kColumns; first += kVector) {
                const auto x = *reinterpret_cast<const SmallVector<float, kVector>*>(right + (k + e) * Tile::kStride +
                                                                                     first * kSide);
#pragma unroll
                for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
                    for (int c = 0; c < kVector; ++c) {
                        sums[i][first + c] = fmaf(weight[i].values[e], x.values[c], sums[i][first + c]);
                    }
                }
            }
        }
    }
}

/// This thread's scores to a tile of them.
template <int kDim>
__device__ void StoreScores(const typename FlashTile<kDim>::Scores& scores, float* tile) {
    using Tile = FlashTile<kDim>;
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
        for (int j = 0; j < Tile::kRows; ++j) {
            tile[(ThreadY() * Tile::kRows + i) * Tile::kScoreStride + ThreadX() + kSide * j] = scores[i][j];
        }
    }
}

/// Over the threads that share a row; all of them have it.
__device__ inline float RowMaximum(float x) {
#pragma unroll
    for (int offset = kSide / 2; offset > 0; offset /= 2) {
        x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, offset));
    }
    return x;
}
__device__ inline float RowSum(float x) {
#pragma unroll
    for (int offset = kSide / 2; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(kFullWarp, x, offset);
    }
    return x;
}

/// Which tile of which head of which sample a block has. All heads of one tile come before the next tile.
struct FlashTask {
    int tile;
    int head;
    int batch;
};
__device__ inline FlashTask TaskOf(int block, int num_heads, int batch_size) {
    const int index = block % (num_heads * batch_size);
    return {.tile = block / (num_heads * batch_size), .head = index % num_heads, .batch = index / num_heads};
}

/// Calls f with an integral_constant: the narrowest heads that kernels are compiled for and that hold head_dim.
template <typename F>
void DispatchHeadDim(int64_t head_dim, F&& f) {
    if (head_dim <= 16) {
        f(std::integral_constant<int, 16>{});
    } else if (head_dim <= 32) {
        f(std::integral_constant<int, 32>{});
    } else if (head_dim <= 64) {
        f(std::integral_constant<int, 64>{});
    } else if (head_dim <= 96) {
        f(std::integral_constant<int, 96>{});
    } else if (head_dim <= 128) {
        f(std::integral_constant<int, 128>{});
    } else if (head_dim <= 256) {
        f(std::integral_constant<int, 256>{});
    } else {
        throw Error({.where = "attention on CUDA",
                     .what = "heads are too wide",
                     .got = std::to_string(head_dim),
                     .wanted = "at most 256"});
    }
}

/// Whether rows of heads may be read and written 16 bytes at a time.
template <typename T, typename... Pointers>
bool HasPacks(int64_t head_dim, const Pointers*... pointers) {
    return head_dim % Pack<T>::kSize == 0 && IsAligned16(pointers...);
}

/// One block for each tile of each of num_heads heads of each sample.
template <int kDim, typename... Parameters, typename... Args>
void LaunchTiles(void (*kernel)(Parameters...), const AttentionSizes& sizes, int64_t num_heads, int num_shared_floats,
                 const Device& device, Args... args) {
    const int64_t num_tiles = CeilDiv(sizes.length, FlashTile<kDim>::kSize);
    const int64_t num_blocks = num_tiles * num_heads * sizes.batch_size;
    CHECK_LE(num_blocks, std::numeric_limits<int>::max()) << "attention: blocks of one launch";
    const int shared_bytes = num_shared_floats * static_cast<int>(sizeof(float));
    // More than 48 KiB must be asked for.
    INFINI_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    kernel<<<static_cast<unsigned>(num_blocks), kFlashThreads, static_cast<size_t>(shared_bytes),
             LaunchStream(device)>>>(args...);
    INFINI_CUDA_CHECK_LAUNCH();
}

}  // namespace infini_train::kernels::cuda
