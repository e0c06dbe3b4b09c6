#include "infini_train/include/kernels/rotary.h"

#include <cstdint>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/elementwise.cuh"

namespace infini_train::kernels::cuda {
namespace {

constexpr int kBlock = 128;
constexpr int kUnroll = 4;  // vectors of a thread: a block has a row of up to 4096 bfloat16, so few have more than one

struct RotarySizes {
    unsigned num_positions;  // T
    int row_width;           // (H + 2 K) D
    unsigned head_dim;       // D
    int rotated_width;       // (H + K) D: the columns that are turned
};

template <typename T, int kWidth, bool kAligned>
__device__ Vector<T, kWidth> Load(const T* address) {
    if constexpr (kAligned) {
        return LoadVector<kWidth>(address);
    } else {
        Vector<T, kWidth> vector;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
            vector.values[i] = address[i];
        }
        return vector;
    }
}

/// Block (n, i) turns columns from i * kBlock * kUnroll * kWidth on of row n. kWidth divides D, so that a vector is in
/// one head; sign -1 turns the other way.
template <typename T, int kWidth, bool kAligned>
__global__ void __launch_bounds__(kBlock)
    RotaryKernel(const T* qkv, const float* angles, RotarySizes sizes, float sign, T* rotated) {
    const int64_t row = blockIdx.x;
    const T* const x = qkv + row * sizes.row_width;
    T* const y = rotated + row * sizes.row_width;
    const float* const angle = angles + int64_t{blockIdx.x % sizes.num_positions} * sizes.head_dim;
    const int first = (blockIdx.y * kBlock * kUnroll + threadIdx.x) * kWidth;

    Vector<T, kWidth> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const int column = first + u * kBlock * kWidth;
        if (column < sizes.row_width) {
            loaded[u] = Load<T, kWidth, kAligned>(x + column);
        }
    }
    Vector<float, kWidth> turn;
    unsigned turn_place = 0;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const int column = first + u * kBlock * kWidth;
        if (column >= sizes.row_width) {
            return;
        }
        if (column < sizes.rotated_width) {
            // Mostly the vectors of a thread are at the same place of their heads.
            const unsigned place = static_cast<unsigned>(column) % sizes.head_dim;
            if (u == 0 || place != turn_place) {
                turn = Load<float, kWidth, kAligned>(angle + place);
                turn_place = place;
            }
#pragma unroll
            for (int i = 0; i < kWidth; i += 2) {
                const float cosine = turn.values[i];
                const float sine = sign * turn.values[i + 1];
                const float even = ToFloat(loaded[u].values[i]);
                const float odd = ToFloat(loaded[u].values[i + 1]);
                // Says which product is rounded, so that all widths give the same bits.
                loaded[u].values[i] = FromFloat<T>(fmaf(even, cosine, -__fmul_rn(odd, sine)));
                loaded[u].values[i + 1] = FromFloat<T>(fmaf(even, sine, __fmul_rn(odd, cosine)));
            }
        }
        if constexpr (kAligned) {
            StoreVector(y + column, loaded[u]);
        } else {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                y[column + i] = loaded[u].values[i];
            }
        }
    }
}

}  // namespace

std::shared_ptr<Tensor> Rotary(const Tensor& qkv, const Tensor& angles, const AttentionHeads& heads, bool inverse) {
    CHECK_EQ(qkv.num_dims(), 3) << "rotary: qkv " << ToString(qkv.shape());
    const int64_t head_dim = HeadDim(qkv, heads);
    CHECK_EQ(head_dim % 2, 0) << "rotary: turns pairs, heads are " << head_dim << " wide";
    CHECK(angles.num_dims() == 3 && angles.dim(0) >= qkv.dim(1) && angles.dim(1) == head_dim / 2 && angles.dim(2) == 2)
        << "rotary: angles " << ToString(angles.shape()) << " for " << qkv.dim(1) << " positions and heads " << head_dim
        << " wide";
    const RotarySizes sizes{
        .num_positions = static_cast<unsigned>(qkv.dim(1)),
        .row_width = static_cast<int>(qkv.dim(2)),
        .head_dim = static_cast<unsigned>(head_dim),
        .rotated_width = static_cast<int>((int64_t{heads.num_heads} + heads.num_kv_heads) * head_dim)};
    auto rotated = Tensor::Empty(qkv.shape(), qkv.dtype(), qkv.device());
    const float* angle_data = angles.data<float>();
    if (qkv.num_elements() == 0) {
        return rotated;
    }
    DispatchFloat(qkv.dtype(), [&](auto zero) {
        using T = decltype(zero);
        constexpr int kWidth = kVectorWidth<T>;
        const T* x = Elements<T>(qkv);
        T* y = Elements<T>(*rotated);
        const auto launch = [&](auto kernel, int width) {
            const dim3 grid(static_cast<unsigned>(qkv.num_rows()),
                            static_cast<unsigned>(CeilDiv(sizes.row_width, kBlock * kUnroll * width)));
            kernel<<<grid, kBlock, 0, LaunchStream(qkv.device())>>>(x, angle_data, sizes, inverse ? -1.0f : 1.0f, y);
            INFINI_CUDA_CHECK_LAUNCH();
        };
        if (head_dim % kWidth == 0 && IsAligned16(x, y, angle_data)) {
            launch(RotaryKernel<T, kWidth, true>, kWidth);
        } else {
            launch(RotaryKernel<T, 2, false>, 2);
        }
    });
    return rotated;
}

}  // namespace infini_train::kernels::cuda
