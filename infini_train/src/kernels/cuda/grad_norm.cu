#include "infini_train/include/kernels/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>

#include "infini_train/src/kernels/cuda/block_search.cuh"
#include "infini_train/src/kernels/cuda/launch.cuh"

// Bound by reading the gradients once: 4 bytes an element. The square of a float32 is exact in double, so that a fused
// multiply-add rounds once, as multiplication and addition do.

namespace infini_train::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = Pack<float>::kSize;
constexpr int kRounds = 8;  // 16-byte loads of a thread: enough in flight, and blocks are small beside the whole
constexpr int64_t kChunk = int64_t{kThreads} * kPack * kRounds;  // elements that a block sums
constexpr int kSumThreads = 512;  // 64 sums a thread for the largest gradients there are, 2^28 elements
constexpr int kScaleThreads = 256;
constexpr int kMaxGrads = 1024;  // of a launch

struct GradTable {
    int num_grads;
    int first_block[kMaxGrads + 1];
    const float* grads[kMaxGrads];
    int64_t counts[kMaxGrads];
};
static_assert(sizeof(GradTable) + 2 * sizeof(void*) <= kMaxArgumentBytes);

/// The sum over a block in a fixed order, for thread 0. Once a kernel.
template <int kNumThreads>
__device__ double BlockSum(double x) {
    __shared__ double warp_sums[kNumThreads / kWarp];
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(kFullWarp, x, offset);
    }
    if (threadIdx.x % kWarp == 0) {
        warp_sums[threadIdx.x / kWarp] = x;
    }
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0) {
        for (const double warp_sum : warp_sums) {
            sum += warp_sum;
        }
    }
    return sum;
}

/// The thread's part of the sum of the squares of x[0 .. count), whose elements are the same ones on both paths.
/// kIsWhole: a full chunk at an aligned address.
template <bool kIsWhole>
__device__ double ThreadSum(const float* x, int64_t count) {
    double sums[kPack] = {};
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const int begin = (round * kThreads + static_cast<int>(threadIdx.x)) * kPack;
        Pack<float> pack;
        if constexpr (kIsWhole) {
            pack = LoadPack(x + begin);
        } else {
#pragma unroll
            for (int k = 0; k < kPack; ++k) {
                pack.values[k] = begin + k < count ? x[begin + k] : 0.0f;
            }
        }
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
            const double value = pack.values[k];
            sums[k] = fma(value, value, sums[k]);
        }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__global__ void __launch_bounds__(kThreads)
    ChunkSumsKernel(const __grid_constant__ GradTable table, double* __restrict__ chunk_sums) {
    const int block = static_cast<int>(blockIdx.x);
    const int index = OwnerOfBlock(table.first_block, table.num_grads, block);
    const int64_t begin = (block - table.first_block[index]) * kChunk;
    const int64_t count = table.counts[index] - begin;
    const float* x = table.grads[index] + begin;
    const bool is_whole = count >= kChunk && (reinterpret_cast<uintptr_t>(x) & 15u) == 0;
    const double sum = BlockSum<kThreads>(is_whole ? ThreadSum<true>(x, count) : ThreadSum<false>(x, count));
    if (threadIdx.x == 0) {
        chunk_sums[block] = sum;
    }
}

/// One block a gradient.
__global__ void __launch_bounds__(kSumThreads)
    GradSumsKernel(const __grid_constant__ GradTable table, const double* __restrict__ chunk_sums,
                   float* __restrict__ squared_sums) {
    const int end = table.first_block[blockIdx.x + 1];
    double sum = 0.0;
#pragma unroll 4
    for (int i = table.first_block[blockIdx.x] + static_cast<int>(threadIdx.x); i < end; i += kSumThreads) {
        sum += chunk_sums[i];
    }
    sum = BlockSum<kSumThreads>(sum);
    if (threadIdx.x == 0) {
        squared_sums[blockIdx.x] = static_cast<float>(sum);
    }
}

/// One block: it loads together, and its first thread adds in order.
__global__ void __launch_bounds__(kScaleThreads)
    GradScaleKernel(const float* __restrict__ squared_sums, int64_t num_sums, const int64_t* __restrict__ num_valid,
                    float max_norm, float* __restrict__ norm_output, float* __restrict__ scale_output) {
    __shared__ float values[kScaleThreads];
    double sum = 0.0;
    for (int64_t begin = 0; begin < num_sums; begin += kScaleThreads) {
        const int count = static_cast<int>(min(num_sums - begin, int64_t{kScaleThreads}));
        if (static_cast<int>(threadIdx.x) < count) {
            values[threadIdx.x] = squared_sums[begin + threadIdx.x];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 0; i < count; ++i) {
                sum += values[i];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x != 0) {
        return;
    }
    const int64_t count = *num_valid;
    if (count < 0) {
        printf("grad_scale: num_valid %lld\n", static_cast<long long>(count));
        __trap();
    }
    double norm = 0.0;
    double scale = 0.0;
    if (count > 0) {
        norm = sqrt(sum) / static_cast<double>(count);
        const double limit = max_norm / (norm + 1e-6);
        const double clip = max_norm > 0.0f && limit < 1.0 ? limit : 1.0;
        scale = isfinite(norm) ? clip / static_cast<double>(count) : nan("");
    }
    *norm_output = static_cast<float>(norm);
    *scale_output = static_cast<float>(scale);
}

void LaunchSums(std::span<const Tensor* const> grads, float* squared_sums, const Device& device) {
    GradTable table;
    table.num_grads = static_cast<int>(grads.size());
    int num_blocks = 0;
    for (size_t i = 0; i < grads.size(); ++i) {
        table.first_block[i] = num_blocks;
        table.grads[i] = Elements<float>(*grads[i]);
        table.counts[i] = grads[i]->num_elements();
        num_blocks += CeilDiv(table.counts[i], kChunk);
    }
    table.first_block[grads.size()] = num_blocks;
    // Doubles: as many bytes as int64.
    const std::shared_ptr<Tensor> chunk_sums = Tensor::Empty({num_blocks}, DataType::kInt64, device);
    auto* sums = static_cast<double*>(chunk_sums->raw_data());
    const cudaStream_t stream = LaunchStream(device);
    if (num_blocks > 0) {
        ChunkSumsKernel<<<num_blocks, kThreads, 0, stream>>>(table, sums);
        INFINI_CUDA_CHECK_LAUNCH();
    }
    GradSumsKernel<<<table.num_grads, kSumThreads, 0, stream>>>(table, sums, squared_sums);
    INFINI_CUDA_CHECK_LAUNCH();
}

}  // namespace

void SquaredSums(std::span<const Tensor* const> grads, Tensor& squared_sums) {
    CheckSquaredSums(grads, squared_sums);
    for (size_t begin = 0; begin < grads.size(); begin += kMaxGrads) {
        const size_t count = std::min(grads.size() - begin, size_t{kMaxGrads});
        LaunchSums(grads.subspan(begin, count), Elements<float>(squared_sums) + begin, squared_sums.device());
    }
}

GradScaleOutput GradScale(const Tensor& squared_sums, const Tensor& num_valid, float max_norm) {
    CheckGradScale(squared_sums, num_valid, max_norm);
    const Device& device = squared_sums.device();
    GradScaleOutput output = {.norm = Tensor::Empty({1}, DataType::kFloat32, device),
                              .scale = Tensor::Empty({1}, DataType::kFloat32, device)};
    GradScaleKernel<<<1, kScaleThreads, 0, LaunchStream(device)>>>(
        Elements<float>(squared_sums), squared_sums.num_elements(), Elements<int64_t>(num_valid), max_norm,
        Elements<float>(*output.norm), Elements<float>(*output.scale));
    INFINI_CUDA_CHECK_LAUNCH();
    return output;
}

}  // namespace infini_train::kernels::cuda
