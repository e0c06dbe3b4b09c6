#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "infini_train/src/kernels/cuda/launch.cuh"

// Kernels whose output element i depends on element i of the inputs alone: they move bytes, and all that matters is
// that enough of them are on their way.
namespace infini_train::kernels::cuda {

/// Some elements of an array, accessed at once: 16 bytes at a time where they are more.
template <typename T, int kWidth>
struct alignas(std::min(kWidth* static_cast<int>(sizeof(T)), 16)) Vector {
    T values[kWidth];
};
template <int kWidth, typename T>
__device__ inline Vector<T, kWidth> LoadVector(const T* address) {
    return *reinterpret_cast<const Vector<T, kWidth>*>(address);
}
template <int kWidth, typename T>
__device__ inline void StoreVector(T* address, const Vector<T, kWidth>& vector) {
    // Says which instruction: of an assignment of the struct the compiler makes a store for each member where it does
    // not see how the address is aligned.
    if constexpr (sizeof(vector) % sizeof(uint4) == 0) {
#pragma unroll
        for (size_t k = 0; k < sizeof(vector) / sizeof(uint4); ++k) {
            __stwb(reinterpret_cast<uint4*>(address) + k, reinterpret_cast<const uint4*>(vector.values)[k]);
        }
    } else if constexpr (sizeof(vector) == sizeof(uint2)) {
        __stwb(reinterpret_cast<uint2*>(address), *reinterpret_cast<const uint2*>(vector.values));
    } else {
        static_assert(kWidth == 1);
        *address = vector.values[0];
    }
}

/// Elements of the types that one access of each has: 16 bytes of the widest type, so that the accesses of neighbouring
/// threads touch.
template <typename... Types>
constexpr int kVectorWidth = 16 / static_cast<int>(std::max({sizeof(Types)...}));

constexpr int kElementwiseBlock = 256;
// Vectors of each input that a thread loads before it uses one: with one alone, a kernel of one input has too few bytes
// on their way to fill the memory's bandwidth.
constexpr int kElementwiseUnroll = 2;

// Operations that several kernels are.
struct Same {
    __device__ std::array<float, 1> operator()(float x) const { return {x}; }
};
struct Sum {
    __device__ std::array<float, 1> operator()(float a, float b) const { return {a + b}; }
};

template <int kWidth, typename Op, typename Out, size_t kOutputs, typename... In>
__global__ void __launch_bounds__(kElementwiseBlock)
    ElementwiseKernel(Op op, int64_t count, std::array<Out*, kOutputs> outputs, const In*... inputs) {
    const int64_t num_vectors = count / kWidth;
    const int64_t first = int64_t{blockIdx.x} * (kElementwiseBlock * kElementwiseUnroll) + threadIdx.x;
    std::tuple<Vector<In, kWidth>...> loaded[kElementwiseUnroll];
#pragma unroll
    for (int u = 0; u < kElementwiseUnroll; ++u) {
        const int64_t vector = first + u * kElementwiseBlock;
        if (vector < num_vectors) {
            loaded[u] = {LoadVector<kWidth>(inputs + vector * kWidth)...};
        }
    }
#pragma unroll
    for (int u = 0; u < kElementwiseUnroll; ++u) {
        const int64_t vector = first + u * kElementwiseBlock;
        if (vector < num_vectors) {
            Vector<Out, kWidth> stored[kOutputs];
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                const std::array<float, kOutputs> results =
                    std::apply([&](const auto&... vectors) { return op(ToFloat(vectors.values[i])...); }, loaded[u]);
#pragma unroll
                for (size_t k = 0; k < kOutputs; ++k) {
                    stored[k].values[i] = FromFloat<Out>(results[k]);
                }
            }
#pragma unroll
            for (size_t k = 0; k < kOutputs; ++k) {
                StoreVector(outputs[k] + vector * kWidth, stored[k]);
            }
        }
    }
    // The elements after the last whole vector.
    const int64_t rest = num_vectors * kWidth + threadIdx.x;
    if (kWidth > 1 && blockIdx.x == 0 && rest < count) {
        const std::array<float, kOutputs> results = op(ToFloat(inputs[rest])...);
#pragma unroll
        for (size_t k = 0; k < kOutputs; ++k) {
            outputs[k][rest] = FromFloat<Out>(results[k]);
        }
    }
}

/// outputs[k][i] = op(inputs[i]...)[k] for i < count. op takes a float for each input and returns a
/// std::array<float, kOutputs>. An output may be an input, too.
template <typename Op, typename Out, size_t kOutputs, typename... In>
void LaunchElementwise(const Device& device, int64_t count, Op op, const std::array<Out*, kOutputs>& outputs,
                       const In*... inputs) {
    if (count == 0) {
        return;
    }
    static_assert(kOutputs == 1 || kOutputs == 2);
    const bool aligned = IsAligned16(outputs.front(), outputs.back(), inputs...);
    const auto launch = [&]<int kWidth>(std::integral_constant<int, kWidth>) {
        const int num_blocks = std::max(1, CeilDiv(count / kWidth, int64_t{kElementwiseBlock} * kElementwiseUnroll));
        ElementwiseKernel<kWidth, Op, Out, kOutputs, In...>
            <<<num_blocks, kElementwiseBlock, 0, LaunchStream(device)>>>(op, count, outputs, inputs...);
        INFINI_CUDA_CHECK_LAUNCH();
    };
    if (aligned) {
        launch(std::integral_constant<int, kVectorWidth<Out, In...>>{});
    } else {
        launch(std::integral_constant<int, 1>{});
    }
}

}  // namespace infini_train::kernels::cuda
