#pragma once

#include <cstdint>

#include "cuda_bf16.h"
#include "cuda_runtime.h"
#include "glog/logging.h"

#include "infini_train/include/core/tensor.h"
#include "infini_train/src/core/cuda/cuda_check.h"
#include "infini_train/src/core/cuda/cuda_stream.h"

// What the element-wise and row-wise kernels share: element types, 16-byte accesses, sums over a warp and a block.
namespace infini_train::kernels::cuda {

using infini_train::cuda::CudaStreamOf;
using infini_train::cuda::LaunchStream;

constexpr int kWarp = 32;
constexpr unsigned kFullWarp = 0xffffffffu;

/// Calls f with a value of the element type of a float dtype: float or __nv_bfloat16.
template <typename F>
void DispatchFloat(DataType dtype, F&& f) {
    if (dtype == DataType::kFloat32) {
        f(float{});
    } else {
        CHECK(dtype == DataType::kBFloat16) << Name(dtype);
        f(__nv_bfloat16{});
    }
}

/// The elements of a tensor as a kernel sees them.
template <typename T>
T* Elements(Tensor& x) {
    return static_cast<T*>(x.raw_data());
}
template <typename T>
const T* Elements(const Tensor& x) {
    return static_cast<const T*>(x.raw_data());
}

__device__ inline float ToFloat(float x) {
    return x;
}
__device__ inline float ToFloat(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
/// Rounds to nearest even.
template <typename T>
__device__ inline T FromFloat(float x) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return x;
    } else {
        return __float2bfloat16_rn(x);
    }
}

/// 16 bytes of elements, loaded and stored at once.
template <typename T>
struct alignas(16) Pack {
    static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
    T values[kSize];
};
template <typename T>
__device__ inline Pack<T> LoadPack(const T* address) {
    return *reinterpret_cast<const Pack<T>*>(address);
}
template <typename T>
__device__ inline void StorePack(T* address, const Pack<T>& pack) {
    *reinterpret_cast<Pack<T>*>(address) = pack;
}
/// True where 16-byte accesses may be used on the addresses.
template <typename... Pointers>
bool IsAligned16(const Pointers*... pointers) {
    return ((reinterpret_cast<uintptr_t>(pointers) | ...) & 15u) == 0;
}

/// The sum over the lanes of a warp, in a fixed order; every lane has it.
__device__ inline float WarpSum(float x) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(kFullWarp, x, offset);
    }
    return x;
}

inline int CeilDiv(int64_t a, int64_t b) {
    return static_cast<int>((a + b - 1) / b);
}

}  // namespace infini_train::kernels::cuda
