#include "infini_train/include/kernels/swiglu.h"

#include <array>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/elementwise.cuh"
#include "infini_train/src/kernels/cuda/sigmoid.cuh"

namespace infini_train::kernels::cuda {
namespace {

void CheckAlike(const char* operation, const Tensor& other, const Tensor& gate) {
    CHECK(other.shape() == gate.shape() && other.dtype() == gate.dtype())
        << operation << ": " << ToString(other.shape()) << " " << Name(other.dtype()) << " beside a gate "
        << ToString(gate.shape()) << " " << Name(gate.dtype());
}

struct Swiglu {
    __device__ std::array<float, 1> operator()(float gate, float up) const { return {gate * Sigmoid(gate) * up}; }
};

struct DgateAndDup {
    __device__ std::array<float, 2> operator()(float dy, float gate, float up) const {
        const SigmoidPair sigmoid = SigmoidAndComplement(gate);
        const float derivative = sigmoid.value * (1.0f + gate * sigmoid.complement);
        return {dy * up * derivative, dy * (gate * sigmoid.value)};
    }
};

}  // namespace

std::shared_ptr<Tensor> SwigluForward(const Tensor& gate, const Tensor& up) {
    CheckAlike("swiglu_forward", up, gate);
    auto y = Tensor::Empty(gate.shape(), gate.dtype(), gate.device());
    DispatchFloat(gate.dtype(), [&](auto zero) {
        using T = decltype(zero);
        LaunchElementwise(gate.device(), gate.num_elements(), Swiglu{}, std::array{Elements<T>(*y)}, Elements<T>(gate),
                          Elements<T>(up));
    });
    return y;
}

SwigluGrad SwigluBackward(const Tensor& dy, const Tensor& gate, const Tensor& up) {
    CheckAlike("swiglu_backward", up, gate);
    CheckAlike("swiglu_backward", dy, gate);
    SwigluGrad grad{.dgate = Tensor::Empty(gate.shape(), gate.dtype(), gate.device()),
                    .dup = Tensor::Empty(up.shape(), up.dtype(), up.device())};
    DispatchFloat(gate.dtype(), [&](auto zero) {
        using T = decltype(zero);
        LaunchElementwise(gate.device(), gate.num_elements(), DgateAndDup{},
                          std::array{Elements<T>(*grad.dgate), Elements<T>(*grad.dup)}, Elements<T>(dy),
                          Elements<T>(gate), Elements<T>(up));
    });
    return grad;
}

}  // namespace infini_train::kernels::cuda
