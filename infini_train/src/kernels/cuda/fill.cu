#include "infini_train/include/kernels/fill.h"

#include <array>

#include "infini_train/src/kernels/cuda/elementwise.cuh"

namespace infini_train::kernels::cuda {
namespace {

struct Constant {
    float value;
    __device__ std::array<float, 1> operator()() const { return {value}; }
};

}  // namespace

void Fill(Tensor& x, float value) {
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        LaunchElementwise(x.device(), x.num_elements(), Constant{.value = value}, std::array{Elements<T>(x)});
    });
}

}  // namespace infini_train::kernels::cuda
