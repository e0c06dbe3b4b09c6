#pragma once

#include "infini_train/src/kernels/cuda/columns.cuh"

// What the backward of a norm computes of one row. Multiply-adds are written out, so that all variants of a kernel
// round alike.
namespace infini_train::kernels::cuda {

/// The tensors of a backward, by the names of the contracts. Null: dsum if there is none, mean if not centered.
template <typename T>
struct NormBackwardRows {
    const T* dy = nullptr;
    const T* dsum = nullptr;
    const T* sum = nullptr;
    const T* weight = nullptr;
    const float* mean = nullptr;
    const float* rstd = nullptr;
    T* dx = nullptr;
    float* partial_sums = nullptr;  // [2 or 1, blocks, C]: of dweight and, if centered, of dbias
    int64_t num_rows = 0;
    int64_t num_columns = 0;
};

/// Two blocks for each multiprocessor of the largest GPUs; a constant, so that sums have the same bits on every GPU.
constexpr int kMaxBackwardBlocks = 264;
constexpr int kBackwardThreads = 512;
constexpr int kBackwardWarps = kBackwardThreads / kWarp;

/// h = sum * scale + shift. As exact as (sum - mean) * rstd, for mean is rounded itself.
struct RowScale {
    float scale = 0.0f;  // rstd
    float shift = 0.0f;  // -mean * rstd
};

template <bool kCentered>
__device__ inline float Normal(float sum, const RowScale& row) {
    return kCentered ? fmaf(sum, row.scale, row.shift) : sum * row.scale;
}

/// The sums over a row of g and of g * h, where g = dy * weight.
struct RowSums {
    float g = 0.0f;  // if centered
    float gh = 0.0f;
};

/// The sums of the warps of a block, twice: a warp may write those of the next row before another has read these.
using WarpSums = RowSums[2][kBackwardWarps];

template <bool kCentered, typename T>
__device__ inline void AddToRowSums(const Pack<T>& dy, const Pack<T>& sum, const Pack<T>& weight, const RowScale& row,
                                    RowSums& sums) {
    float grad[Pack<T>::kSize];
    float x[Pack<T>::kSize];
    float w[Pack<T>::kSize];
    ToFloats(dy, grad);
    ToFloats(sum, x);
    ToFloats(weight, w);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        if constexpr (kCentered) {
            sums.g = fmaf(grad[i], w[i], sums.g);
        }
        sums.gh = fmaf(grad[i] * w[i], Normal<kCentered>(x[i], row), sums.gh);
    }
}

/// Adds up the sums of as many lanes, a power of two, for each of them.
template <bool kCentered, int kLanes>
__device__ inline RowSums SumOfLanes(RowSums sums) {
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
        if constexpr (kCentered) {
            sums.g += __shfl_xor_sync(kFullWarp, sums.g, offset);
        }
        sums.gh += __shfl_xor_sync(kFullWarp, sums.gh, offset);
    }
    return sums;
}

/// The means over a row from the sums of its warps. Both halves of a warp do the same.
template <bool kCentered>
__device__ inline RowSums RowMeans(const RowSums* warp_sums, int num_warps, float inverse_count) {
    const int warp = static_cast<int>(threadIdx.x) % kBackwardWarps;
    const RowSums sums = SumOfLanes<kCentered, kBackwardWarps>(warp < num_warps ? warp_sums[warp] : RowSums{});
    return {.g = sums.g * inverse_count, .gh = sums.gh * inverse_count};
}

/// dx of a pack; adds to the sums over rows that the thread keeps of its columns.
template <bool kCentered, typename T>
__device__ inline Pack<T> BackwardPack(const Pack<T>& dy, const Pack<T>& dsum, const Pack<T>& sum,
                                       const Pack<T>& weight, const RowScale& row, const RowSums& means, float* dweight,
                                       float* dbias) {
    float grad[Pack<T>::kSize];
    float x[Pack<T>::kSize];
    float w[Pack<T>::kSize];
    float dx[Pack<T>::kSize];
    ToFloats(dy, grad);
    ToFloats(sum, x);
    ToFloats(weight, w);
    ToFloats(dsum, dx);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        const float normal = Normal<kCentered>(x[i], row);
        const float g = kCentered ? fmaf(grad[i], w[i], -means.g) : grad[i] * w[i];
        dx[i] = fmaf(row.scale, fmaf(-normal, means.gh, g), dx[i]);
        dweight[i] = fmaf(grad[i], normal, dweight[i]);
        if constexpr (kCentered) {
            dbias[i] += grad[i];
        }
    }
    return FromFloats<T>(dx);
}

}  // namespace infini_train::kernels::cuda
