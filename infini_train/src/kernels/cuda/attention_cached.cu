#include "infini_train/include/kernels/attention_cached.h"

#include <cmath>
#include <cstdint>
#include <memory>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/kernels/cuda/launch.cuh"

// A block has one query of one head, a warp every kWarps-th group of positions, a lane every kWarp-th channel: a
// running maximum, sum and weighted sum of values a warp (online softmax), which are put together in the order of the
// warps. What begins a sequence goes through attention_forward.

namespace infini_train::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kBlock = kWarps * kWarp;
constexpr int kMaxHeadDim = 256;  // as that of attention_forward
constexpr int kLaneChannels = kMaxHeadDim / kWarp;
constexpr int kGroup = 4;  // positions that a warp loads at once, to wait for memory once a group

/// Block (row, tensor) copies the keys (0) or the values (1) of a row of qkv.
template <typename T>
__global__ void __launch_bounds__(kBlock) KeepRowsKernel(const T* qkv, CachedAttentionSizes sizes, T* keys, T* values) {
    const int64_t row = blockIdx.x;
    const bool is_value = blockIdx.y == 1;
    const T* const from = qkv + row * sizes.row_width() + (is_value ? sizes.value_offset() : sizes.key_offset());
    T* const to = (is_value ? values : keys) + sizes.kept(row / sizes.length, sizes.start + row % sizes.length);
    for (int64_t i = threadIdx.x; i < sizes.kv_width(); i += kBlock) {
        to[i] = from[i];
    }
}

/// What a warp, and at last the block, makes of its positions: weights are exp(score - maximum).
struct Softmax {
    float maximum = -INFINITY;
    float sum = 0.0f;
};

/// Block row * H + h.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    AttendKernel(const T* qkv, const T* keys, const T* values, CachedAttentionSizes sizes, float scale, T* out) {
    __shared__ float warp_maximum[kWarps];
    __shared__ float warp_sum[kWarps];
    __shared__ float warp_out[kWarps][kMaxHeadDim];

    const int64_t head = blockIdx.x % sizes.num_heads;
    const int64_t row = blockIdx.x / sizes.num_heads;
    const int64_t num_positions = sizes.start + row % sizes.length + 1;
    const int head_dim = static_cast<int>(sizes.head_dim);
    const int warp = threadIdx.x / kWarp;
    const int lane = threadIdx.x % kWarp;
    const int64_t kept = sizes.kept(row / sizes.length, 0) + head / sizes.group_size() * sizes.head_dim;
    const T* const query = qkv + row * sizes.row_width() + head * sizes.head_dim;

    float q[kLaneChannels];
    float sums[kLaneChannels];
#pragma unroll
    for (int i = 0; i < kLaneChannels; ++i) {
        const int d = lane + i * kWarp;
        q[i] = d < head_dim ? ToFloat(query[d]) * scale : 0.0f;
        sums[i] = 0.0f;
    }
    Softmax own;
    for (int64_t first = warp * kGroup; first < num_positions; first += kWarps * kGroup) {
        float score[kGroup];
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            score[j] = 0.0f;
#pragma unroll
            for (int i = 0; i < kLaneChannels; ++i) {
                const int d = lane + i * kWarp;
                if (d < head_dim && first + j < num_positions) {
                    score[j] += q[i] * ToFloat(keys[kept + (first + j) * sizes.kv_width() + d]);
                }
            }
        }
        float maximum = own.maximum;
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            score[j] = first + j < num_positions ? WarpSum(score[j]) : -INFINITY;
            maximum = fmaxf(maximum, score[j]);
        }
        const float decay = expf(own.maximum - maximum);
        own.maximum = maximum;
        own.sum *= decay;
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i) {
            sums[i] *= decay;
        }
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            const float weight = expf(score[j] - maximum);
            own.sum += weight;
#pragma unroll
            for (int i = 0; i < kLaneChannels; ++i) {
                const int d = lane + i * kWarp;
                if (d < head_dim && first + j < num_positions) {
                    sums[i] += weight * ToFloat(values[kept + (first + j) * sizes.kv_width() + d]);
                }
            }
        }
    }
    if (lane == 0) {
        warp_maximum[warp] = own.maximum;
        warp_sum[warp] = own.sum;
    }
#pragma unroll
    for (int i = 0; i < kLaneChannels; ++i) {
        warp_out[warp][lane + i * kWarp] = sums[i];
    }
    __syncthreads();

    // The first warp has position 0, so the maximum is a number. A warp without positions has weight 0.
    Softmax all;
    for (int w = 0; w < kWarps; ++w) {
        all.maximum = fmaxf(all.maximum, warp_maximum[w]);
    }
    for (int w = 0; w < kWarps; ++w) {
        all.sum += expf(warp_maximum[w] - all.maximum) * warp_sum[w];
    }
    const int d = threadIdx.x;
    if (d < head_dim) {
        float sum = 0.0f;
        for (int w = 0; w < kWarps; ++w) {
            sum += expf(warp_maximum[w] - all.maximum) * warp_out[w][d];
        }
        out[blockIdx.x * sizes.head_dim + d] = FromFloat<T>(sum / all.sum);
    }
}
static_assert(kBlock >= kMaxHeadDim, "a thread has one channel of the output");

}  // namespace

std::shared_ptr<Tensor> AttentionCached(const Tensor& qkv, const AttentionHeads& heads, int64_t start, Tensor& keys,
                                        Tensor& values) {
    const CachedAttentionSizes sizes = CheckedCachedSizes(qkv, heads, start, keys, values);
    if (sizes.head_dim > kMaxHeadDim) {
        throw Error({.where = "attention_cached",
                     .what = "heads are too wide for a GPU",
                     .got = StrCat(sizes.head_dim),
                     .wanted = StrCat("at most ", kMaxHeadDim)});
    }
    const int64_t num_rows = sizes.batch_size * sizes.length;
    const auto stream = LaunchStream(qkv.device());
    if (num_rows > 0) {
        DispatchFloat(qkv.dtype(), [&](auto zero) {
            using T = decltype(zero);
            const dim3 grid(static_cast<unsigned>(num_rows), 2);
            KeepRowsKernel<<<grid, kBlock, 0, stream>>>(Elements<T>(qkv), sizes, Elements<T>(keys),
                                                        Elements<T>(values));
            INFINI_CUDA_CHECK_LAUNCH();
        });
    }
    if (start == 0) {
        return AttentionForward(qkv, heads).out;
    }
    auto out =
        Tensor::Empty({sizes.batch_size, sizes.length, sizes.num_heads * sizes.head_dim}, qkv.dtype(), qkv.device());
    if (num_rows > 0) {
        DispatchFloat(qkv.dtype(), [&](auto zero) {
            using T = decltype(zero);
            AttendKernel<<<static_cast<unsigned>(num_rows * sizes.num_heads), kBlock, 0, stream>>>(
                Elements<T>(qkv), Elements<T>(keys), Elements<T>(values), sizes,
                1.0f / std::sqrt(static_cast<float>(sizes.head_dim)), Elements<T>(*out));
            INFINI_CUDA_CHECK_LAUNCH();
        });
    }
    return out;
}

}  // namespace infini_train::kernels::cuda
