#pragma once

#include <algorithm>
#include <bit>
#include <memory>

#include "cuda_pipeline_primitives.h"

#include "infini_train/src/kernels/cuda/columns.cuh"
#include "infini_train/src/kernels/cuda/norm_backward_row.cuh"

// The backward of both norms: LayerNorm is the centered one (mean and dbias), RMSNorm the other. One kernel reads each
// row once, writes its dx, and adds it to the block's sums over rows; a second one adds up the blocks.
namespace infini_train::kernels::cuda {

/// The packs that a thread keeps in shared memory: the rows that are on their way and the weight. It copies, writes and
/// reads its own only, so that nobody waits for others. Registers for them would cost half the threads.
enum RowTensor : int { kDy, kSum, kDsum, kNumRowTensors };

template <typename T>
struct OwnPacks {
    Pack<T>* packs;  // the thread's first; the next is kBackwardThreads on

    __device__ Pack<T>* Address(int index) const { return packs + index * kBackwardThreads; }
    __device__ Pack<T> operator()(int index) const {
        // Without the cast the compiler loads element by element.
        return std::bit_cast<Pack<T>>(*reinterpret_cast<const uint4*>(Address(index)));
    }
};

/// Begins to copy num_columns elements, at most a pack; zeros in place of the others.
template <bool kVector, typename T>
__device__ inline void BeginCopy(Pack<T>* to, const T* from, int num_columns) {
    if constexpr (kVector) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from),
                       "r"(num_columns > 0 ? 16 : 0)
                     : "memory");
    } else {
        *to = LoadColumns<false>(from, 0, num_columns);
    }
}

/// Begins to copy a thread's part of row n, which begins at offset; zeros where the row or the column does not exist.
/// Returns mean and rstd.
template <int kPacks, bool kCentered, bool kVector, typename T>
__device__ inline float2 BeginRow(const NormBackwardRows<T>& rows, int64_t n, int64_t offset, int first_column,
                                  int step, const OwnPacks<T>& stage) {
    const bool exists = n < rows.num_rows;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        const int num_columns = exists ? static_cast<int>(rows.num_columns) - first_column - p * step : 0;
        const int64_t begin = num_columns > 0 ? offset + p * step : 0;  // an address that exists in any case
        BeginCopy<kVector>(stage.Address(kDy * kPacks + p), rows.dy + begin, num_columns);
        BeginCopy<kVector>(stage.Address(kSum * kPacks + p), rows.sum + begin, num_columns);
        if (rows.dsum != nullptr) {
            BeginCopy<kVector>(stage.Address(kDsum * kPacks + p), rows.dsum + begin, num_columns);
        }
    }
    __pipeline_commit();
    return {kCentered && exists ? rows.mean[n] : 0.0f, exists ? rows.rstd[n] : 0.0f};
}

/// Writes the sums that the block's rows-at-a-time have of each column, added in their order. columns_of_row: how many
/// sums the threads of one row have, which is at least num_columns. combined: room for all of the block.
template <int kPacks, int kSize>
__device__ inline void WriteBlockSums(const float* sums, int row, int rows_at_a_time, int columns_of_row,
                                      int first_column, int step, int num_columns, float* combined, float* out) {
    __syncthreads();  // the sums written before are read
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
            combined[row * columns_of_row + first_column + p * step + i] = sums[p * kSize + i];
        }
    }
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < num_columns; c += static_cast<int>(blockDim.x)) {
        float total = 0.0f;
        for (int r = 0; r < rows_at_a_time; ++r) {
            total += combined[r * columns_of_row + c];
        }
        out[c] = total;
    }
}

/// A block works on blockDim.x / row_threads rows at a time, row_threads (whole warps) on each, and every thread keeps
/// the sums over rows of its columns. The next rows are on their way while these are computed, and two blocks a
/// multiprocessor hide the barrier that each row has.
template <typename T, bool kCentered, bool kVector, int kPacks>
__global__ void __launch_bounds__(kBackwardThreads, kPacks == 1 ? 2 : 1)
    NormBackwardKernel(const NormBackwardRows<T> rows, int row_threads) {
    constexpr int kSize = Pack<T>::kSize;
    constexpr int kElements = kPacks * kSize;
    constexpr int kStage = kNumRowTensors * kPacks;  // of packs
    __shared__ WarpSums warp_sums;
    extern __shared__ uint4 dynamic_shared[];
    const OwnPacks<T> own{reinterpret_cast<Pack<T>*>(dynamic_shared) + threadIdx.x};
    const int num_columns = static_cast<int>(rows.num_columns);
    const int rows_at_a_time = static_cast<int>(blockDim.x) / row_threads;
    const int row = static_cast<int>(threadIdx.x) / row_threads;
    const int first_column = static_cast<int>(threadIdx.x) % row_threads * kSize;
    const int step = row_threads * kSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int row_warps = row_threads / kWarp;
    const float inverse_count = 1.0f / static_cast<float>(num_columns);

    const OwnPacks<T> weight{own.Address(2 * kStage)};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        *weight.Address(p) = LoadColumns<kVector>(rows.weight, first_column + p * step, num_columns);
        if (rows.dsum == nullptr) {  // nothing will be copied there
            const float zeros[kSize] = {};
            *own.Address(kDsum * kPacks + p) = FromFloats<T>(zeros);
            *own.Address(kStage + kDsum * kPacks + p) = FromFloats<T>(zeros);
        }
    }
    float dweight[kElements] = {};
    float dbias[kElements] = {};
    const int64_t stride = int64_t{gridDim.x} * rows_at_a_time;
    int64_t n = int64_t{blockIdx.x} * rows_at_a_time + row;
    int64_t offset = n * num_columns + first_column;
    float2 statistics = BeginRow<kPacks, kCentered, kVector>(rows, n, offset, first_column, step, own);
    int parity = 0;
    // All threads go on until the block's first row does not exist: the barrier is for all.
    for (; n - row < rows.num_rows; n += stride, offset += stride * num_columns, parity ^= 1) {
        const OwnPacks<T> stage{own.Address(parity * kStage)};
        const OwnPacks<T> next{own.Address((parity ^ 1) * kStage)};
        const float2 next_statistics = BeginRow<kPacks, kCentered, kVector>(
            rows, n + stride, offset + stride * num_columns, first_column, step, next);
        __pipeline_wait_prior(1);  // for all but the next row

        const RowScale scale = {.scale = statistics.y, .shift = -statistics.x * statistics.y};
        RowSums sums;
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            AddToRowSums<kCentered>(stage(kDy * kPacks + p), stage(kSum * kPacks + p), weight(p), scale, sums);
        }
        sums = SumOfLanes<kCentered, kWarp>(sums);
        if (threadIdx.x % kWarp == 0) {
            warp_sums[parity][warp] = sums;
        }
        __syncthreads();
        const RowSums means = RowMeans<kCentered>(warp_sums[parity] + row * row_warps, row_warps, inverse_count);
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            const Pack<T> dx =
                BackwardPack<kCentered>(stage(kDy * kPacks + p), stage(kDsum * kPacks + p), stage(kSum * kPacks + p),
                                        weight(p), scale, means, dweight + p * kSize, dbias + p * kSize);
            const int existing_columns = n < rows.num_rows ? num_columns - first_column - p * step : 0;
            StoreColumns<kVector>(rows.dx + offset + p * step, 0, existing_columns, dx);
        }
        statistics = next_statistics;
    }
    __pipeline_wait_prior(0);  // of the row that does not exist: the memory is used again

    auto* const combined = reinterpret_cast<float*>(dynamic_shared);
    float* const out = rows.partial_sums + int64_t{blockIdx.x} * num_columns;
    WriteBlockSums<kPacks, kSize>(dweight, row, rows_at_a_time, row_threads * kElements, first_column, step,
                                  num_columns, combined, out);
    if constexpr (kCentered) {
        WriteBlockSums<kPacks, kSize>(dbias, row, rows_at_a_time, row_threads * kElements, first_column, step,
                                      num_columns, combined, out + int64_t{gridDim.x} * num_columns);
    }
}

/// A block a row at a time, of any length: the row is read twice, and the sums over rows are in memory, where each
/// thread reads and writes those of its own columns.
template <typename T, bool kCentered, bool kVector>
__global__ void __launch_bounds__(kBackwardThreads) NormBackwardLongKernel(const NormBackwardRows<T> rows) {
    constexpr int kSize = Pack<T>::kSize;
    constexpr int64_t kStep = int64_t{kBackwardThreads} * kSize;
    __shared__ WarpSums warp_sums;
    const int64_t num_columns = rows.num_columns;
    const int64_t first_column = int64_t{threadIdx.x} * kSize;
    float* const dweight_sums = rows.partial_sums + blockIdx.x * num_columns;
    float* const dbias_sums = dweight_sums + gridDim.x * num_columns;  // if centered
    const float inverse_count = 1.0f / static_cast<float>(num_columns);
    int parity = 0;
    for (int64_t n = blockIdx.x; n < rows.num_rows; n += gridDim.x, parity ^= 1) {
        const int64_t offset = n * num_columns;
        const float rstd = rows.rstd[n];
        const RowScale scale = {.scale = rstd, .shift = kCentered ? -rows.mean[n] * rstd : 0.0f};
        RowSums sums;
        for (int64_t column = first_column; column < num_columns; column += kStep) {
            AddToRowSums<kCentered>(LoadColumns<kVector>(rows.dy + offset, column, num_columns),
                                    LoadColumns<kVector>(rows.sum + offset, column, num_columns),
                                    LoadColumns<kVector>(rows.weight, column, num_columns), scale, sums);
        }
        sums = SumOfLanes<kCentered, kWarp>(sums);
        if (threadIdx.x % kWarp == 0) {
            warp_sums[parity][threadIdx.x / kWarp] = sums;
        }
        __syncthreads();
        const RowSums means = RowMeans<kCentered>(warp_sums[parity], kBackwardWarps, inverse_count);
        const bool is_first = n == blockIdx.x;
        for (int64_t column = first_column; column < num_columns; column += kStep) {
            float dweight[kSize];
            float dbias[kSize] = {};
            for (int i = 0; i < kSize; ++i) {
                const bool has_sum = !is_first && column + i < num_columns;
                dweight[i] = has_sum ? dweight_sums[column + i] : 0.0f;
                if constexpr (kCentered) {
                    dbias[i] = has_sum ? dbias_sums[column + i] : 0.0f;
                }
            }
            const Pack<T> dsum =
                LoadColumns<kVector>(rows.dsum + offset, column, rows.dsum != nullptr ? num_columns : 0);
            const Pack<T> dx = BackwardPack<kCentered>(
                LoadColumns<kVector>(rows.dy + offset, column, num_columns), dsum,
                LoadColumns<kVector>(rows.sum + offset, column, num_columns),
                LoadColumns<kVector>(rows.weight, column, num_columns), scale, means, dweight, dbias);
            StoreColumns<kVector>(rows.dx + offset, column, num_columns, dx);
            for (int i = 0; i < kSize && column + i < num_columns; ++i) {
                dweight_sums[column + i] = dweight[i];
                if constexpr (kCentered) {
                    dbias_sums[column + i] = dbias[i];
                }
            }
        }
    }
}

/// out[y][c] = the sum over blocks of partial_sums[y, block, c], for y = blockIdx.y; 32 columns a block, whose warps
/// first sum every 32nd block and then a column each.
template <bool kCentered>
__global__ void __launch_bounds__(kWarp* kWarp)
    AddBlockSumsKernel(const float* partial_sums, int num_blocks, int64_t num_columns, float* out_0, float* out_1) {
    __shared__ float sums[kWarp][kWarp + 1];
    const int lane = static_cast<int>(threadIdx.x);
    const int warp = static_cast<int>(threadIdx.y);
    const int64_t first_column = int64_t{blockIdx.x} * kWarp;
    float sum = 0.0f;
    if (first_column + lane < num_columns) {
        const float* const column = partial_sums + blockIdx.y * num_blocks * num_columns + first_column + lane;
#pragma unroll 4
        for (int block = warp; block < num_blocks; block += kWarp) {
            sum += column[block * num_columns];
        }
    }
    sums[warp][lane] = sum;
    __syncthreads();
    sum = WarpSum(sums[lane][warp]);
    if (lane == 0 && first_column + warp < num_columns) {
        (blockIdx.y == 0 ? out_0 : out_1)[first_column + warp] = sum;
    }
}

template <typename T, bool kCentered, bool kVector, int kPacks>
void LaunchNormBackwardKernel(const NormBackwardRows<T>& rows, int num_blocks, int rows_at_a_time, int row_threads,
                              cudaStream_t stream) {
    constexpr int kPacksOfThread = 2 * kNumRowTensors * kPacks + kPacks;
    constexpr int kSharedBytes = kPacksOfThread * kBackwardThreads * static_cast<int>(sizeof(Pack<T>));
    const int num_threads = rows_at_a_time * row_threads;
    const auto kernel = NormBackwardKernel<T, kCentered, kVector, kPacks>;
    // More than a kernel has without asking.
    INFINI_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    kernel<<<num_blocks, num_threads, kSharedBytes, stream>>>(rows, row_threads);
}

/// dweight, dbias: [C]; dbias null if not centered.
template <bool kCentered, typename T>
void LaunchNormBackward(NormBackwardRows<T> rows, const Device& device, float* dweight, float* dbias) {
    constexpr int64_t kNumSums = kCentered ? 2 : 1;
    constexpr int64_t kSize = Pack<T>::kSize;
    constexpr int64_t kOnePackColumns = kSize * kBackwardThreads;
    if (rows.num_columns == 0) {
        return;
    }
    const cudaStream_t stream = LaunchStream(device);
    // One pack a thread are few registers, hence many threads; two where a block is too small for that.
    const int64_t warp_columns = kWarp * kSize * (rows.num_columns <= kOnePackColumns ? 1 : 2);
    const int row_threads = static_cast<int>(
        std::min<int64_t>((rows.num_columns + warp_columns - 1) / warp_columns * kWarp, kBackwardThreads));
    const int rows_at_a_time = kBackwardThreads / row_threads;
    const int64_t num_blocks =
        std::min<int64_t>(kMaxBackwardBlocks, (rows.num_rows + rows_at_a_time - 1) / rows_at_a_time);
    const auto partial_sums = Tensor::Empty(Shape{kNumSums, num_blocks, rows.num_columns}, DataType::kFloat32, device);
    rows.partial_sums = partial_sums->template data<float>();
    const int grid = static_cast<int>(num_blocks);
    const bool is_vector =
        rows.num_columns % kSize == 0 && IsAligned16(rows.dy, rows.dsum, rows.sum, rows.weight, rows.dx);
    if (grid > 0) {
        DispatchVector(is_vector, [&](auto vector) {
            constexpr bool kVector = decltype(vector)::value;
            if (rows.num_columns <= kOnePackColumns) {
                LaunchNormBackwardKernel<T, kCentered, kVector, 1>(rows, grid, rows_at_a_time, row_threads, stream);
            } else if (rows.num_columns <= 2 * kOnePackColumns) {
                LaunchNormBackwardKernel<T, kCentered, kVector, 2>(rows, grid, rows_at_a_time, row_threads, stream);
            } else {
                NormBackwardLongKernel<T, kCentered, kVector><<<grid, kBackwardThreads, 0, stream>>>(rows);
            }
        });
        INFINI_CUDA_CHECK_LAUNCH();
    }
    const dim3 sums_grid(static_cast<unsigned>(CeilDiv(rows.num_columns, kWarp)), static_cast<unsigned>(kNumSums));
    AddBlockSumsKernel<kCentered>
        <<<sums_grid, dim3(kWarp, kWarp), 0, stream>>>(rows.partial_sums, grid, rows.num_columns, dweight, dbias);
    INFINI_CUDA_CHECK_LAUNCH();
}

}  // namespace infini_train::kernels::cuda
