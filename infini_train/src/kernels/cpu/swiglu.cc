#include "infini_train/include/kernels/swiglu.h"

#include <algorithm>
#include <cstdint>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kBlock = 4096;              // elements a task: a few pages of each operand
constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves

void CheckAlike(const char* operation, const Tensor& other, const Tensor& gate) {
    CHECK(other.shape() == gate.shape() && other.dtype() == gate.dtype())
        << operation << ": " << ToString(other.shape()) << " " << Name(other.dtype()) << " beside a gate "
        << ToString(gate.shape()) << " " << Name(gate.dtype());
}

template <typename T>
void Forward(const T* gate, const T* up, int64_t count, T* y) {
#pragma omp parallel for if (count > kSerialElements)
    for (int64_t begin = 0; begin < count; begin += kBlock) {
        const int64_t end = std::min(begin + kBlock, count);
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
            const float g = static_cast<float>(gate[i]);
            Store(g * Sigmoid(g).value * static_cast<float>(up[i]), y[i]);
        }
    }
}

template <typename T>
void Backward(const T* dy, const T* gate, const T* up, int64_t count, T* dgate, T* dup) {
#pragma omp parallel for if (count > kSerialElements)
    for (int64_t begin = 0; begin < count; begin += kBlock) {
        const int64_t end = std::min(begin + kBlock, count);
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
            const float g = static_cast<float>(gate[i]);
            const float grad = static_cast<float>(dy[i]);
            const SigmoidPair sigmoid = Sigmoid(g);
            const float derivative = sigmoid.value * (1.0f + g * sigmoid.complement);
            Store(grad * static_cast<float>(up[i]) * derivative, dgate[i]);
            Store(grad * (g * sigmoid.value), dup[i]);
        }
    }
}

}  // namespace

std::shared_ptr<Tensor> SwigluForward(const Tensor& gate, const Tensor& up) {
    CheckAlike("swiglu_forward", up, gate);
    auto y = Tensor::Empty(gate.shape(), gate.dtype(), gate.device());
    DispatchFloat(gate.dtype(), [&](auto zero) {
        using T = decltype(zero);
        Forward(gate.data<T>(), up.data<T>(), gate.num_elements(), y->data<T>());
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
        Backward(dy.data<T>(), gate.data<T>(), up.data<T>(), gate.num_elements(), grad.dgate->data<T>(),
                 grad.dup->data<T>());
    });
    return grad;
}

}  // namespace infini_train::kernels::cpu
