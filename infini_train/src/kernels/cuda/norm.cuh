#pragma once

#include "infini_train/src/kernels/cuda/columns.cuh"

// The forward of both norms: LayerNorm is the centered one (mean and bias), RMSNorm the other. Multiply-adds are
// written out, so that all variants of a kernel round alike.
namespace infini_train::kernels::cuda {

/// An operand that is there has the shape and dtype of x.
inline void CheckLike(const char* kernel, const Tensor& x, const char* name, const Tensor* operand) {
    CHECK(operand == nullptr || (operand->shape() == x.shape() && operand->dtype() == x.dtype()))
        << kernel << ": " << name << " " << ToString(operand->shape()) << " " << Name(operand->dtype()) << ", x "
        << ToString(x.shape()) << " " << Name(x.dtype());
}

/// The tensors of a forward, by the names of the contracts. Null: branch and sum without a branch, bias and mean if not
/// centered.
template <typename T>
struct NormForwardRows {
    const T* x = nullptr;
    const T* branch = nullptr;
    const T* weight = nullptr;
    const T* bias = nullptr;
    T* sum = nullptr;
    T* y = nullptr;
    float* mean = nullptr;
    float* rstd = nullptr;
    int64_t num_rows = 0;
    int64_t num_columns = 0;
    float eps = 0.0f;
};

/// The columns of a row that a thread keeps in registers: 4 loads of 16 bytes in bfloat16.
constexpr int kForwardElements = 32;
/// Rows, one a warp, that share a block where a warp is enough for a row.
constexpr int kRowsPerBlock = 4;
/// Longer rows are read again instead of kept.
constexpr int kLongRow = 8192;
/// The threads for a row that is read again.
constexpr int kLongRowThreads = 512;

/// The sum over the threads of a row, kWarps warps in the order of the warps. shared: kWarps floats that nothing else
/// uses in this block.
template <int kWarps>
__device__ inline float RowSum(float x, float* shared) {
    x = WarpSum(x);
    if constexpr (kWarps > 1) {
        if (threadIdx.x % kWarp == 0) {
            shared[threadIdx.x / kWarp] = x;
        }
        __syncthreads();
        x = 0.0f;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) {
            x += shared[warp];
        }
    }
    return x;
}

/// x + branch, rounded as the addition's kernel does.
template <typename T>
__device__ inline Pack<T> AddPacks(const Pack<T>& x, const Pack<T>& branch) {
    float sum[Pack<T>::kSize];
    float term[Pack<T>::kSize];
    ToFloats(x, sum);
    ToFloats(branch, term);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        sum[i] += term[i];
    }
    return FromFloats<T>(sum);
}

template <bool kCentered, typename T>
__device__ inline Pack<T> Normalize(const Pack<T>& sum, float mean, float rstd, const Pack<T>& weight,
                                    const Pack<T>& bias) {
    float y[Pack<T>::kSize];
    float w[Pack<T>::kSize];
    float b[Pack<T>::kSize];
    ToFloats(sum, y);
    ToFloats(weight, w);
    if constexpr (kCentered) {
        ToFloats(bias, b);
    }
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        const float normal = (y[i] - mean) * rstd;
        y[i] = kCentered ? fmaf(normal, w[i], b[i]) : normal * w[i];
    }
    return FromFloats<T>(y);
}

/// The squared distances to mean of the columns below num_columns; squares where mean is 0.
template <bool kVector, typename T, typename Index>
__device__ inline float SquaredDistances(const Pack<T>& pack, float mean, Index column, Index num_columns) {
    float x[Pack<T>::kSize];
    ToFloats(pack, x);
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        const float distance = column + (kVector ? 0 : i) < num_columns ? x[i] - mean : 0.0f;
        squares = fmaf(distance, distance, squares);
    }
    return squares;
}

template <typename T>
__device__ inline float PackSum(const Pack<T>& pack) {
    float x[Pack<T>::kSize];
    ToFloats(pack, x);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        sum += x[i];
    }
    return sum;
}

/// kWarps warps a row, which stays in registers: each tensor is read or written once.
template <typename T, bool kCentered, bool kVector, int kWarps>
__global__ void __launch_bounds__(kWarps == 1 ? kRowsPerBlock * kWarp : kWarps * kWarp)
    NormForwardKernel(const NormForwardRows<T> rows) {
    constexpr int kSize = Pack<T>::kSize;
    constexpr int kPacks = kForwardElements / kSize;
    constexpr int kThreads = kWarps * kWarp;
    __shared__ float shared[2][kWarps];
    const int64_t n = kWarps == 1 ? int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp : int64_t{blockIdx.x};
    if (n >= rows.num_rows) {
        return;  // a whole warp, where a warp has a row; there are no barriers then
    }
    const int num_columns = static_cast<int>(rows.num_columns);
    const int first_column = static_cast<int>(threadIdx.x) % kThreads * kSize;
    const int64_t offset = n * num_columns;

    Pack<T> sum[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        sum[p] = LoadColumns<kVector>(rows.x + offset, first_column + p * kThreads * kSize, num_columns);
    }
    if (rows.branch != nullptr) {
        Pack<T> branch[kPacks];
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            branch[p] = LoadColumns<kVector>(rows.branch + offset, first_column + p * kThreads * kSize, num_columns);
        }
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            sum[p] = AddPacks(sum[p], branch[p]);
            StoreColumns<kVector>(rows.sum + offset, first_column + p * kThreads * kSize, num_columns, sum[p]);
        }
    }

    const float count = static_cast<float>(num_columns);
    float mean = 0.0f;
    if constexpr (kCentered) {
        float total = 0.0f;
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            total += PackSum(sum[p]);
        }
        mean = RowSum<kWarps>(total, shared[0]) / count;
    }
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        squares += SquaredDistances<kVector>(sum[p], mean, first_column + p * kThreads * kSize, num_columns);
    }
    const float rstd = 1.0f / sqrtf(RowSum<kWarps>(squares, shared[1]) / count + rows.eps);

#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
        const int column = first_column + p * kThreads * kSize;
        const Pack<T> weight = LoadColumns<kVector>(rows.weight, column, num_columns);
        Pack<T> bias;
        if constexpr (kCentered) {
            bias = LoadColumns<kVector>(rows.bias, column, num_columns);
        }
        StoreColumns<kVector>(rows.y + offset, column, num_columns,
                              Normalize<kCentered>(sum[p], mean, rstd, weight, bias));
    }
    if (threadIdx.x % kThreads == 0) {
        if constexpr (kCentered) {
            rows.mean[n] = mean;
        }
        rows.rstd[n] = rstd;
    }
}

/// A block a row of any length. A thread reads again only what it wrote itself.
template <typename T, bool kCentered, bool kVector>
__global__ void __launch_bounds__(kLongRowThreads) NormForwardLongKernel(const NormForwardRows<T> rows) {
    constexpr int kWarps = kLongRowThreads / kWarp;
    constexpr int64_t kStep = int64_t{kLongRowThreads} * Pack<T>::kSize;
    __shared__ float shared[2][kWarps];
    const int64_t num_columns = rows.num_columns;
    const int64_t first_column = int64_t{threadIdx.x} * Pack<T>::kSize;
    const int64_t offset = blockIdx.x * num_columns;
    const T* const row = (rows.branch == nullptr ? rows.x : rows.sum) + offset;

    if (rows.branch != nullptr) {
        for (int64_t column = first_column; column < num_columns; column += kStep) {
            const Pack<T> x = LoadColumns<kVector>(rows.x + offset, column, num_columns);
            const Pack<T> branch = LoadColumns<kVector>(rows.branch + offset, column, num_columns);
            StoreColumns<kVector>(rows.sum + offset, column, num_columns, AddPacks(x, branch));
        }
    }
    const float count = static_cast<float>(num_columns);
    float mean = 0.0f;
    if constexpr (kCentered) {
        float total = 0.0f;
        for (int64_t column = first_column; column < num_columns; column += kStep) {
            total += PackSum(LoadColumns<kVector>(row, column, num_columns));
        }
        mean = RowSum<kWarps>(total, shared[0]) / count;
    }
    float squares = 0.0f;
    for (int64_t column = first_column; column < num_columns; column += kStep) {
        squares += SquaredDistances<kVector>(LoadColumns<kVector>(row, column, num_columns), mean, column, num_columns);
    }
    const float rstd = 1.0f / sqrtf(RowSum<kWarps>(squares, shared[1]) / count + rows.eps);
    for (int64_t column = first_column; column < num_columns; column += kStep) {
        const Pack<T> sum = LoadColumns<kVector>(row, column, num_columns);
        const Pack<T> weight = LoadColumns<kVector>(rows.weight, column, num_columns);
        Pack<T> bias;
        if constexpr (kCentered) {
            bias = LoadColumns<kVector>(rows.bias, column, num_columns);
        }
        StoreColumns<kVector>(rows.y + offset, column, num_columns,
                              Normalize<kCentered>(sum, mean, rstd, weight, bias));
    }
    if (threadIdx.x == 0) {
        if constexpr (kCentered) {
            rows.mean[blockIdx.x] = mean;
        }
        rows.rstd[blockIdx.x] = rstd;
    }
}

template <bool kCentered, typename T>
void LaunchNormForward(const NormForwardRows<T>& rows, cudaStream_t stream) {
    if (rows.num_rows == 0) {
        return;
    }
    const bool is_vector = rows.num_columns % Pack<T>::kSize == 0 &&
                           IsAligned16(rows.x, rows.branch, rows.weight, rows.bias, rows.sum, rows.y);
    const unsigned num_rows = static_cast<unsigned>(rows.num_rows);
    DispatchVector(is_vector, [&](auto vector) {
        constexpr bool kVector = decltype(vector)::value;
        constexpr int kWarpColumns = kWarp * kForwardElements;
        if (rows.num_columns <= kWarpColumns) {
            const int num_blocks = CeilDiv(rows.num_rows, kRowsPerBlock);
            NormForwardKernel<T, kCentered, kVector, 1><<<num_blocks, kRowsPerBlock * kWarp, 0, stream>>>(rows);
        } else if (rows.num_columns <= 2 * kWarpColumns) {
            NormForwardKernel<T, kCentered, kVector, 2><<<num_rows, 2 * kWarp, 0, stream>>>(rows);
        } else if (rows.num_columns <= 4 * kWarpColumns) {
            NormForwardKernel<T, kCentered, kVector, 4><<<num_rows, 4 * kWarp, 0, stream>>>(rows);
        } else if (rows.num_columns <= kLongRow) {
            static_assert(8 * kWarpColumns == kLongRow);
            NormForwardKernel<T, kCentered, kVector, 8><<<num_rows, 8 * kWarp, 0, stream>>>(rows);
        } else {
            NormForwardLongKernel<T, kCentered, kVector><<<num_rows, kLongRowThreads, 0, stream>>>(rows);
        }
    });
    INFINI_CUDA_CHECK_LAUNCH();
}

}  // namespace infini_train::kernels::cuda
