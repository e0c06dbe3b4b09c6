#include "infini_train/include/kernels/loss_total.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "infini_train/src/kernels/cuda/block_search.cuh"
#include "infini_train/src/kernels/cuda/launch.cuh"

// A block loads its numbers together, and its first thread adds them in their order.

namespace infini_train::kernels::cuda {
namespace {

constexpr int kMaxMicrobatches = 512;  // of a launch; later launches go on with the total of earlier ones
constexpr int kMeanThreads = 128;

struct MicrobatchTable {
    int num_microbatches;
    const float* sums[kMaxMicrobatches];
    const int64_t* counts[kMaxMicrobatches];
};
static_assert(sizeof(MicrobatchTable) + 2 * sizeof(void*) <= kMaxArgumentBytes);

__device__ double ToDouble(int64_t bits) {
    return __longlong_as_double(bits);
}

/// goes_on: total holds the sums of the micro-batches before.
__global__ void __launch_bounds__(kMaxMicrobatches)
    LossTotalKernel(const __grid_constant__ MicrobatchTable table, bool goes_on, int64_t* __restrict__ total) {
    __shared__ float sums[kMaxMicrobatches];
    __shared__ int64_t counts[kMaxMicrobatches];
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < table.num_microbatches) {
        sums[thread] = *table.sums[thread];
        counts[thread] = *table.counts[thread];
    }
    __syncthreads();
    if (thread == 0) {
        double sum = goes_on ? ToDouble(total[0]) : 0.0;
        int64_t count = goes_on ? total[1] : 0;
        for (int m = 0; m < table.num_microbatches; ++m) {
            sum += sums[m];
            count += counts[m];
        }
        total[0] = __double_as_longlong(sum);
        total[1] = count;
    }
}

__global__ void __launch_bounds__(kMeanThreads)
    LossMeanKernel(const int64_t* __restrict__ totals, int64_t num_rows, float* __restrict__ mean,
                   int64_t* __restrict__ num_valid) {
    __shared__ double sums[kMeanThreads];
    __shared__ int64_t counts[kMeanThreads];
    const int thread = static_cast<int>(threadIdx.x);
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t begin = 0; begin < num_rows; begin += kMeanThreads) {
        const int rows = static_cast<int>(min(num_rows - begin, int64_t{kMeanThreads}));
        if (thread < rows) {
            sums[thread] = ToDouble(totals[2 * (begin + thread)]);
            counts[thread] = totals[2 * (begin + thread) + 1];
        }
        __syncthreads();
        if (thread == 0) {
            for (int row = 0; row < rows; ++row) {
                sum += sums[row];
                count += counts[row];
            }
        }
        __syncthreads();
    }
    if (thread == 0) {
        *mean = count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
        *num_valid = count;
    }
}

void CheckMicrobatch(const char* name, size_t m, const Tensor& tensor, DataType dtype, const Device& device) {
    CHECK(tensor.shape() == Shape{1} && tensor.dtype() == dtype && tensor.device() == device)
        << "loss_total: " << name << " " << m << " " << ToString(tensor.shape()) << " " << Name(tensor.dtype())
        << " on " << ToString(tensor.device()) << ", wanted [1] " << Name(dtype) << " on " << ToString(device);
}

}  // namespace

void LossTotal(std::span<const Tensor* const> sums, std::span<const Tensor* const> counts, Tensor& total) {
    CHECK_EQ(sums.size(), counts.size()) << "loss_total: sums and counts";
    CHECK(total.shape() == Shape{2} && total.dtype() == DataType::kInt64)
        << "loss_total: total " << ToString(total.shape()) << " " << Name(total.dtype()) << ", wanted [2] int64";
    for (size_t m = 0; m < sums.size(); ++m) {
        CheckMicrobatch("sum", m, *sums[m], DataType::kFloat32, total.device());
        CheckMicrobatch("count", m, *counts[m], DataType::kInt64, total.device());
    }
    if (sums.empty()) {
        total.SetZero();
    }
    for (size_t begin = 0; begin < sums.size(); begin += kMaxMicrobatches) {
        const size_t count = std::min(sums.size() - begin, size_t{kMaxMicrobatches});
        MicrobatchTable table;
        table.num_microbatches = static_cast<int>(count);
        for (size_t i = 0; i < count; ++i) {
            table.sums[i] = Elements<float>(*sums[begin + i]);
            table.counts[i] = Elements<int64_t>(*counts[begin + i]);
        }
        LossTotalKernel<<<1, kMaxMicrobatches, 0, LaunchStream(total.device())>>>(table, begin > 0,
                                                                                  Elements<int64_t>(total));
        INFINI_CUDA_CHECK_LAUNCH();
    }
}

LossMean MeanLoss(const Tensor& totals) {
    CHECK(totals.num_dims() == 2 && totals.dim(1) == 2 && totals.dtype() == DataType::kInt64)
        << "loss_mean: totals " << ToString(totals.shape()) << " " << Name(totals.dtype()) << ", wanted [R, 2] int64";
    const Device& device = totals.device();
    LossMean output = {.mean = Tensor::Empty({1}, DataType::kFloat32, device),
                       .num_valid = Tensor::Empty({1}, DataType::kInt64, device)};
    LossMeanKernel<<<1, kMeanThreads, 0, LaunchStream(device)>>>(
        Elements<int64_t>(totals), totals.dim(0), Elements<float>(*output.mean), Elements<int64_t>(*output.num_valid));
    INFINI_CUDA_CHECK_LAUNCH();
    return output;
}

}  // namespace infini_train::kernels::cuda
