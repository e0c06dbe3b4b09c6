#include "infini_train/include/kernels/cross_entropy.h"

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <type_traits>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/columns.cuh"
#include "infini_train/src/kernels/cuda/launch.cuh"

namespace infini_train::kernels::cuda {
namespace {

constexpr int kThreads = 256;      // of a row: a row of a vocabulary keeps them busy, and a barrier is cheap
constexpr int kGroup = 4;          // packs that a thread has on their way at a time
constexpr int kSumThreads = 1024;  // for the sum over rows
constexpr float kLog2E = 1.44269504088896340736f;

struct Rows {
    int64_t vocab_size;    // columns that take part
    int64_t padded_width;  // Vp: elements between two rows
    int32_t ignore_index;
};

/// exp(x - y) as a float that is exact enough for the element type.
template <typename T>
__device__ inline float ExpOfDifference(float x, float y) {
    if constexpr (std::is_same_v<T, float>) {
        return expf(x - y);
    } else {
        // One instruction of the special function unit: its error, 2^-22, and that of the product, |x - y| 2^-24, are
        // far below the 2^-9 of a bfloat16.
        float power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"((x - y) * kLog2E));
        return power;
    }
}

/// The sum of exp(x - maximum) over elements that a thread has seen. What is added to it is not fused with the
/// exponential's last product, so that all variants of a kernel round alike.
struct ExpSum {
    float maximum = -FLT_MAX;  // not infinity: differences are numbers, and no finite logit is below
    float sum = 0.0f;
};

template <typename T, int kPacks>
__device__ inline void Add(const float (&x)[kPacks][Pack<T>::kSize], ExpSum& exp_sum) {
    float maximum = exp_sum.maximum;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) {
            maximum = fmaxf(maximum, x[p][i]);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) {
            sum = __fadd_rn(sum, ExpOfDifference<T>(x[p][i], maximum));
        }
    }
    exp_sum.sum = fmaf(exp_sum.sum, ExpOfDifference<T>(exp_sum.maximum, maximum), sum);
    exp_sum.maximum = maximum;
}

__device__ inline double WarpSum(double x) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(kFullWarp, x, offset);
    }
    return x;
}

/// log of the sum that all threads of the block have seen. A NaN that a maximum misses comes back through the sums.
__device__ inline double LogSumExp(const ExpSum& exp_sum) {
    constexpr int kWarps = kThreads / kWarp;
    __shared__ float maxima[kWarps];
    __shared__ double sums[kWarps];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    float maximum = exp_sum.maximum;
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        maximum = fmaxf(maximum, __shfl_xor_sync(kFullWarp, maximum, offset));
    }
    if (threadIdx.x % kWarp == 0) {
        maxima[warp] = maximum;
    }
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
        maximum = fmaxf(maximum, maxima[w]);
    }
    const double sum = WarpSum(static_cast<double>(exp_sum.sum * expf(exp_sum.maximum - maximum)));
    if (threadIdx.x % kWarp == 0) {
        sums[warp] = sum;
    }
    __syncthreads();
    double total = 0.0;
    for (int w = 0; w < kWarps; ++w) {
        total += sums[w];
    }
    return maximum + log(total);
}

/// True where the row takes part. A target that is no token ends the program.
__device__ inline bool CheckedTarget(int32_t target, const Rows& rows) {
    if (target == rows.ignore_index) {
        return false;
    }
    if (0 <= target && target < rows.vocab_size) {
        return true;
    }
    if (threadIdx.x == 0) {  // alone, so that no other thread ends it before the line is out
        printf("cross_entropy: target %d at row %u, vocab_size %lld\n", target, blockIdx.x,
               static_cast<long long>(rows.vocab_size));
        __trap();
    }
    return false;
}

/// A block a row, read once.
template <typename T, bool kVector>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const T* logits, const int32_t* targets, const Rows rows, float* lse, double* losses) {
    constexpr int kSize = Pack<T>::kSize;
    constexpr int64_t kGroupColumns = int64_t{kGroup} * kThreads * kSize;
    const int64_t n = blockIdx.x;
    const int32_t target = targets[n];
    if (!CheckedTarget(target, rows)) {
        if (threadIdx.x == 0) {
            lse[n] = 0.0f;
            losses[n] = 0.0;
        }
        return;
    }
    const T* const row = logits + n * rows.padded_width;
    ExpSum exp_sum;
    int64_t first_column = int64_t{threadIdx.x} * kSize;
    int64_t group = 0;
    for (; group + kGroupColumns <= rows.vocab_size; group += kGroupColumns, first_column += kGroupColumns) {
        Pack<T> packs[kGroup];
#pragma unroll
        for (int p = 0; p < kGroup; ++p) {
            // All of its columns exist.
            const T* const address = row + first_column + p * kThreads * kSize;
            packs[p] = kVector ? LoadPack(address) : LoadColumns<false>(address, 0, kSize);
        }
        float x[kGroup][kSize];
#pragma unroll
        for (int p = 0; p < kGroup; ++p) {
            ToFloats(packs[p], x[p]);
        }
        Add<T>(x, exp_sum);
    }
    for (int64_t column = first_column; column < rows.vocab_size; column += kThreads * kSize) {
        const Pack<T> pack = LoadColumns<kVector>(row, column, rows.padded_width);
        float x[1][kSize];
        ToFloats(pack, x[0]);
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
            x[0][i] = column + i < rows.vocab_size ? x[0][i] : -INFINITY;
        }
        Add<T>(x, exp_sum);
    }
    const double row_lse = LogSumExp(exp_sum);
    if (threadIdx.x == 0) {
        lse[n] = static_cast<float>(row_lse);
        losses[n] = row_lse - static_cast<double>(ToFloat(row[target]));
    }
}

/// One block: each thread sums every 1024th row, then they add up what they have.
__global__ void __launch_bounds__(kSumThreads)
    SumRowsKernel(const double* losses, const int32_t* targets, int64_t num_rows, int32_t ignore_index, float* loss_sum,
                  int64_t* num_valid) {
    constexpr int kWarps = kSumThreads / kWarp;
    __shared__ double sums[kWarps];
    __shared__ int64_t counts[kWarps];
    double sum = 0.0;
    int64_t count = 0;
#pragma unroll 4
    for (int64_t n = threadIdx.x; n < num_rows; n += kSumThreads) {
        sum += losses[n];
        count += targets[n] == ignore_index ? 0 : 1;
    }
    sum = WarpSum(sum);
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        count += __shfl_xor_sync(kFullWarp, count, offset);
    }
    if (threadIdx.x % kWarp == 0) {
        sums[threadIdx.x / kWarp] = sum;
        counts[threadIdx.x / kWarp] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < kWarps; ++w) {
            sum += sums[w];
            count += counts[w];
        }
        *loss_sum = static_cast<float>(sum);
        *num_valid = count;
    }
}

/// dlogits of a pack that begins at a column, from its logits.
template <typename T>
__device__ inline Pack<T> BackwardPack(const Pack<T>& logits, int64_t column, int32_t target, float lse, float dloss,
                                       int64_t vocab_size) {
    float x[Pack<T>::kSize];
    ToFloats(logits, x);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        const float probability = ExpOfDifference<T>(x[i], lse);
        const float grad = dloss * (column + i == target ? __fadd_rn(probability, -1.0f) : probability);
        x[i] = column + i < vocab_size ? grad : 0.0f;
    }
    return FromFloats<T>(x);
}

/// A block a row. dlogits may be logits: a thread writes only what it has read itself.
template <typename T, bool kVector>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(const float* dloss_sum, const T* logits, const int32_t* targets, const float* lse, const Rows rows,
                   T* dlogits) {
    constexpr int kSize = Pack<T>::kSize;
    constexpr int64_t kStep = int64_t{kThreads} * kSize;
    const int64_t n = blockIdx.x;
    const int32_t target = targets[n];
    T* const out = dlogits + n * rows.padded_width;
    if (!CheckedTarget(target, rows)) {
        Pack<T> zeros;
        for (int i = 0; i < kSize; ++i) {
            zeros.values[i] = FromFloat<T>(0.0f);
        }
        for (int64_t column = int64_t{threadIdx.x} * kSize; column < rows.padded_width; column += kStep) {
            StoreColumns<kVector>(out, column, rows.padded_width, zeros);
        }
        return;
    }
    const T* const row = logits + n * rows.padded_width;
    const float row_lse = lse[n];
    const float dloss = *dloss_sum;
    for (int64_t first = int64_t{threadIdx.x} * kSize; first < rows.padded_width; first += kGroup * kStep) {
        Pack<T> packs[kGroup];
#pragma unroll
        for (int p = 0; p < kGroup; ++p) {
            packs[p] = LoadColumns<kVector>(row, first + p * kStep, rows.padded_width);
        }
#pragma unroll
        for (int p = 0; p < kGroup; ++p) {
            const int64_t column = first + p * kStep;
            StoreColumns<kVector>(out, column, rows.padded_width,
                                  BackwardPack(packs[p], column, target, row_lse, dloss, rows.vocab_size));
        }
    }
}

void CheckSizes(const char* operation, const Tensor& logits, const Tensor& targets,
                const CrossEntropyOptions& options) {
    CHECK_GE(logits.num_dims(), 1) << operation << ": logits " << ToString(logits.shape());
    Shape rows = logits.shape();
    rows.pop_back();
    CHECK(targets.shape() == rows) << operation << ": targets " << ToString(targets.shape()) << " for logits "
                                   << ToString(logits.shape());
    CHECK(0 < options.vocab_size && options.vocab_size <= logits.dim(-1))
        << operation << ": vocab_size " << options.vocab_size << " of logits " << ToString(logits.shape());
}

Rows RowsOf(const Tensor& logits, const CrossEntropyOptions& options) {
    return {.vocab_size = options.vocab_size, .padded_width = logits.dim(-1), .ignore_index = options.ignore_index};
}

}  // namespace

CrossEntropyOutput CrossEntropyForward(const Tensor& logits, const Tensor& targets,
                                       const CrossEntropyOptions& options) {
    CheckSizes("cross_entropy_forward", logits, targets, options);
    const Device& device = logits.device();
    const int64_t num_rows = logits.num_rows();
    CrossEntropyOutput output{.loss_sum = Tensor::Empty({1}, DataType::kFloat32, device),
                              .num_valid = Tensor::Empty({1}, DataType::kInt64, device),
                              .lse = Tensor::Empty({num_rows}, DataType::kFloat32, device)};
    // Doubles, which no DataType stands for, in integers of their size.
    const auto losses_tensor = Tensor::Empty({num_rows}, DataType::kInt64, device);
    auto* const losses = static_cast<double*>(losses_tensor->raw_data());
    const auto* const target_data = targets.data<int32_t>();
    float* const lse = output.lse->data<float>();
    const cudaStream_t stream = LaunchStream(device);
    if (num_rows > 0) {
        DispatchFloat(logits.dtype(), [&](auto zero) {
            using T = decltype(zero);
            const T* const data = Elements<T>(logits);
            DispatchVector(logits.dim(-1) % Pack<T>::kSize == 0 && IsAligned16(data), [&](auto vector) {
                ForwardKernel<T, decltype(vector)::value><<<static_cast<unsigned>(num_rows), kThreads, 0, stream>>>(
                    data, target_data, RowsOf(logits, options), lse, losses);
            });
        });
        INFINI_CUDA_CHECK_LAUNCH();
    }
    SumRowsKernel<<<1, kSumThreads, 0, stream>>>(losses, target_data, num_rows, options.ignore_index,
                                                 output.loss_sum->data<float>(), output.num_valid->data<int64_t>());
    INFINI_CUDA_CHECK_LAUNCH();
    return output;
}

void CrossEntropyBackward(const Tensor& dloss_sum, const Tensor& logits, const Tensor& targets, const Tensor& lse,
                          const CrossEntropyOptions& options, Tensor& dlogits) {
    CheckSizes("cross_entropy_backward", logits, targets, options);
    const int64_t num_rows = logits.num_rows();
    CHECK_EQ(dloss_sum.num_elements(), 1) << "cross_entropy_backward: dloss_sum " << ToString(dloss_sum.shape());
    CHECK_EQ(lse.num_elements(), num_rows) << "cross_entropy_backward: lse " << ToString(lse.shape());
    CHECK(dlogits.shape() == logits.shape() && dlogits.dtype() == logits.dtype())
        << "cross_entropy_backward: dlogits " << ToString(dlogits.shape()) << " " << Name(dlogits.dtype())
        << ", logits " << ToString(logits.shape()) << " " << Name(logits.dtype());
    const float* const dloss_data = dloss_sum.data<float>();
    const auto* const target_data = targets.data<int32_t>();
    const float* const lse_data = lse.data<float>();
    if (num_rows == 0) {
        return;
    }
    const cudaStream_t stream = LaunchStream(logits.device());
    DispatchFloat(logits.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* const data = Elements<T>(logits);
        T* const out = Elements<T>(dlogits);
        DispatchVector(logits.dim(-1) % Pack<T>::kSize == 0 && IsAligned16(data, out), [&](auto vector) {
            BackwardKernel<T, decltype(vector)::value><<<static_cast<unsigned>(num_rows), kThreads, 0, stream>>>(
                dloss_data, data, target_data, lse_data, RowsOf(logits, options), out);
        });
    });
    INFINI_CUDA_CHECK_LAUNCH();
}

}  // namespace infini_train::kernels::cuda
