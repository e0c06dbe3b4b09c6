#include "infini_train/include/kernels/gelu.h"

#include <array>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/elementwise.cuh"
#include "infini_train/src/kernels/cuda/sigmoid.cuh"

namespace infini_train::kernels::cuda {
namespace {

// 0.5 (1 + tanh(u)) = sigmoid(2 u), which has no cancellation for negative u; 2 u = x (kLinear + kCubic x^2).
constexpr float kLinear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.07135481627159f;     // 0.044715 of it

struct Gelu {
    __device__ std::array<float, 1> operator()(float x) const { return {x * Sigmoid(x * (kLinear + kCubic * x * x))}; }
};

struct GeluGrad {
    __device__ std::array<float, 1> operator()(float dy, float x) const {
        const float square = x * x;
        const SigmoidPair sigmoid = SigmoidAndComplement(x * (kLinear + kCubic * square));
        const float slope = kLinear + 3.0f * kCubic * square;  // of the sigmoid's argument
        return {dy * (sigmoid.value * (1.0f + x * sigmoid.complement * slope))};
    }
};

}  // namespace

std::shared_ptr<Tensor> GeluForward(const Tensor& x) {
    auto y = Tensor::Empty(x.shape(), x.dtype(), x.device());
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        LaunchElementwise(x.device(), x.num_elements(), Gelu{}, std::array{Elements<T>(*y)}, Elements<T>(x));
    });
    return y;
}

std::shared_ptr<Tensor> GeluBackward(const Tensor& dy, const Tensor& x) {
    CHECK(dy.shape() == x.shape() && dy.dtype() == x.dtype())
        << "gelu_backward: dy " << ToString(dy.shape()) << " " << Name(dy.dtype()) << ", x " << ToString(x.shape())
        << " " << Name(x.dtype());
    auto dx = Tensor::Empty(x.shape(), x.dtype(), x.device());
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        LaunchElementwise(x.device(), x.num_elements(), GeluGrad{}, std::array{Elements<T>(*dx)}, Elements<T>(dy),
                          Elements<T>(x));
    });
    return dx;
}

}  // namespace infini_train::kernels::cuda
