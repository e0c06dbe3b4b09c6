#include "infini_train/include/kernels/dropout.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/elementwise.cuh"
#include "infini_train/src/kernels/cuda/philox.cuh"

namespace infini_train::kernels::cuda {
namespace {

constexpr int kBlock = 256;
constexpr int kMaxSamplesAtOnce = 65535;  // the extent of a grid's second axis

struct DropoutSizes {
    int64_t num_samples;
    int64_t sample_elements;
};

/// A thread has kVectorWidth<T> elements of a sample: one or two Philox blocks. kAligned: they are one vector of whole
/// 16 bytes in every sample.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlock) DropoutKernel(const T* x, DropoutSizes sizes, uint64_t seed,
                                                        uint64_t step_and_layer, uint64_t first_sample, float p, T* y) {
    constexpr int kWidth = kVectorWidth<T>;
    static_assert(kWidth % 4 == 0, "whole Philox blocks");
    const int64_t begin = (int64_t{blockIdx.x} * kBlock + threadIdx.x) * kWidth;
    if (begin >= sizes.sample_elements) {
        return;
    }
    const int count = static_cast<int>(min(sizes.sample_elements - begin, int64_t{kWidth}));
    const float kept = 1.0f - p;
    for (int64_t sample = blockIdx.y; sample < sizes.num_samples; sample += gridDim.y) {
        const int64_t offset = sample * sizes.sample_elements + begin;
        Vector<T, kWidth> values;
        if constexpr (kAligned) {
            values = LoadVector<kWidth>(x + offset);
        } else {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                values.values[i] = i < count ? x[offset + i] : FromFloat<T>(0.0f);
            }
        }
        const uint64_t stream = CombineOnDevice(step_and_layer, first_sample + static_cast<uint64_t>(sample));
#pragma unroll
        for (int quarter = 0; quarter < kWidth; quarter += 4) {
            const UniformBlock uniform = PhiloxUniform(seed, stream, static_cast<uint64_t>(begin + quarter) / 4);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                // A division as on the CPU, not a product with the reciprocal: the same bits.
                const float value = ToFloat(values.values[quarter + i]) / kept;
                values.values[quarter + i] = FromFloat<T>(uniform.values[i] >= p ? value : 0.0f);
            }
        }
        if constexpr (kAligned) {
            StoreVector(y + offset, values);
        } else {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                if (i < count) {
                    y[offset + i] = values.values[i];
                }
            }
        }
    }
}

}  // namespace

std::shared_ptr<Tensor> Dropout(const Tensor& x, float p, const DropoutKey& key) {
    CHECK(0.0f <= p && p < 1.0f) << "dropout: p " << p;
    auto y = Tensor::Empty(x.shape(), x.dtype(), x.device());
    const int64_t num_samples = x.dim(0);
    if (x.num_elements() == 0) {
        return y;
    }
    const DropoutSizes sizes{.num_samples = num_samples, .sample_elements = x.num_elements() / num_samples};
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        constexpr int kWidth = kVectorWidth<T>;
        const T* x_data = Elements<T>(x);
        T* y_data = Elements<T>(*y);
        const bool aligned = sizes.sample_elements % kWidth == 0 && IsAligned16(x_data, y_data);
        const auto kernel = aligned ? DropoutKernel<T, true> : DropoutKernel<T, false>;
        const dim3 grid(static_cast<unsigned>(CeilDiv(sizes.sample_elements, int64_t{kBlock} * kWidth)),
                        static_cast<unsigned>(std::min<int64_t>(num_samples, kMaxSamplesAtOnce)));
        kernel<<<grid, kBlock, 0, LaunchStream(x.device())>>>(x_data, sizes, key.seed, Combine(key.step, key.layer),
                                                              key.first_sample, p, y_data);
        INFINI_CUDA_CHECK_LAUNCH();
    });
    return y;
}

}  // namespace infini_train::kernels::cuda
