#include "infini_train/src/kernels/cuda/linear_bias.h"

#include <algorithm>
#include <cstdint>

#include "glog/logging.h"

#include "infini_train/include/kernels/linear.h"
#include "infini_train/src/kernels/cuda/columns.cuh"
#include "infini_train/src/kernels/cuda/launch.cuh"

// The gradient of a bias is bound by reading dy once: 201 MB, 50 us at 4 TB/s, for [32768, 3072] in bfloat16. Blocks of
// rows are summed side by side, each to partial sums in float32, and these are added up in the order of the blocks;
// which block has which rows depends on the sizes alone.

namespace infini_train::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kUnroll = 4;  // rows that a warp has on their way at a time
// Four blocks on each of 132 multiprocessors: all run at once and end together, with 64 KiB on their way to each of
// these, where the latency of the memory asks for 25.
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int64_t kTargetBlocks = 132 * kBlocksPerMultiprocessor;
constexpr int64_t kMinRows = 64;  // of a block: fewer are not worth its partial sums
constexpr int kAddBiasThreads = 256;

/// A warp has 32 packs of columns, and each 8th row of the block's.
template <bool kVector, typename T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    ColumnSumsKernel(const T* __restrict__ dy, int64_t num_rows, int64_t num_columns, int64_t rows_per_block,
                     float* __restrict__ partial_sums) {
    constexpr int kPack = Pack<T>::kSize;
    constexpr int kTile = kWarp * kPack;
    __shared__ float warp_sums[kWarps][kTile];
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int64_t first_column = int64_t{blockIdx.x} * kTile;
    const int64_t column = first_column + lane * kPack;
    const int64_t begin = blockIdx.y * rows_per_block;
    const int64_t end = min(begin + rows_per_block, num_rows);

    float sums[kPack] = {};
    // Not LoadColumns where the row is whole: its branch would wait for each load before the next.
    const auto load = [&](int64_t row) {
        const T* values = dy + row * num_columns;
        if constexpr (kVector) {
            return LoadPack(values + column);
        } else {
            return LoadColumns<false>(values, column, num_columns);
        }
    };
    const auto add = [&](const Pack<T>& pack) {
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
            sums[k] += ToFloat(pack.values[k]);
        }
    };
    if (column < num_columns) {
        int64_t row = begin + warp;
#pragma unroll 1
        for (; row + (kUnroll - 1) * kWarps < end; row += kUnroll * kWarps) {
            Pack<T> packs[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                packs[u] = load(row + u * kWarps);
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                add(packs[u]);
            }
        }
#pragma unroll 1
        for (; row < end; row += kWarps) {
            add(load(row));
        }
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
        warp_sums[warp][lane * kPack + k] = sums[k];
    }
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kTile && first_column + thread < num_columns) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            sum += warp_sums[w][thread];
        }
        partial_sums[blockIdx.y * num_columns + first_column + thread] = sum;
    }
}
static_assert(kThreads >= kWarp * Pack<__nv_bfloat16>::kSize);  // a thread writes a column of the tile

/// A block has 32 columns; a warp of it adds each 8th partial sum.
__global__ void __launch_bounds__(kThreads)
    AddPartialSumsKernel(const float* __restrict__ partial_sums, int64_t num_blocks, int64_t num_columns,
                         bool accumulate, float* __restrict__ dbias) {
    __shared__ float warp_sums[kWarps][kWarp];
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int64_t column = int64_t{blockIdx.x} * kWarp + lane;
    float sum = 0.0f;
    if (column < num_columns) {
#pragma unroll 8
        for (int64_t block = warp; block < num_blocks; block += kWarps) {
            sum += partial_sums[block * num_columns + column];
        }
    }
    warp_sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < num_columns) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            total += warp_sums[w][lane];
        }
        dbias[column] = accumulate ? dbias[column] + total : total;
    }
}

template <typename T>
__global__ void __launch_bounds__(kAddBiasThreads)
    AddBiasKernel(const float* __restrict__ sums, const T* __restrict__ bias, int64_t count, int64_t num_columns,
                  T* __restrict__ y) {
    const int64_t i = int64_t{blockIdx.x} * kAddBiasThreads + threadIdx.x;
    if (i < count) {
        y[i] = FromFloat<T>(sums[i] + ToFloat(bias[i % num_columns]));
    }
}

}  // namespace

void LinearBackwardBias(const Tensor& dy, Tensor& dbias, bool accumulate) {
    CHECK(dbias.shape() == Shape{dy.dim(-1)} && dbias.dtype() == DataType::kFloat32)
        << "linear_backward_bias: dy " << ToString(dy.shape()) << ", dbias " << ToString(dbias.shape()) << " "
        << Name(dbias.dtype());
    const int64_t num_rows = dy.num_rows();
    const int64_t num_columns = dy.dim(-1);
    if (num_columns == 0) {
        return;
    }
    const cudaStream_t stream = LaunchStream(dy.device());
    DispatchFloat(dy.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const int num_tiles = CeilDiv(num_columns, int64_t{kWarp} * Pack<T>::kSize);
        const int64_t max_blocks = std::max(int64_t{1}, kTargetBlocks / num_tiles);
        const int64_t rows_per_block = std::max(kMinRows, (num_rows + max_blocks - 1) / max_blocks);
        const int num_blocks = CeilDiv(num_rows, rows_per_block);
        const auto partial_sums = Tensor::Empty({num_blocks, num_columns}, DataType::kFloat32, dy.device());
        if (num_blocks > 0) {
            const T* values = Elements<T>(dy);
            DispatchVector(num_columns % Pack<T>::kSize == 0 && IsAligned16(values), [&](auto is_vector) {
                const dim3 grid(static_cast<unsigned>(num_tiles), static_cast<unsigned>(num_blocks));
                ColumnSumsKernel<decltype(is_vector)::value><<<grid, kThreads, 0, stream>>>(
                    values, num_rows, num_columns, rows_per_block, Elements<float>(*partial_sums));
                INFINI_CUDA_CHECK_LAUNCH();
            });
        }
        AddPartialSumsKernel<<<CeilDiv(num_columns, kWarp), kThreads, 0, stream>>>(
            Elements<float>(*partial_sums), num_blocks, num_columns, accumulate, Elements<float>(dbias));
        INFINI_CUDA_CHECK_LAUNCH();
    });
}

void AddBias(const Tensor& sums, const Tensor& bias, Tensor& y) {
    const int64_t count = y.num_elements();
    if (count == 0) {
        return;
    }
    DispatchFloat(y.dtype(), [&](auto zero) {
        using T = decltype(zero);
        AddBiasKernel<<<CeilDiv(count, kAddBiasThreads), kAddBiasThreads, 0, LaunchStream(y.device())>>>(
            Elements<float>(sums), Elements<T>(bias), count, y.dim(-1), Elements<T>(y));
        INFINI_CUDA_CHECK_LAUNCH();
    });
}

}  // namespace infini_train::kernels::cuda
