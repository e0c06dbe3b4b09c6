#include "infini_train/include/kernels/gelu.h"

#include <algorithm>
#include <cstdint>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kBlock = 4096;              // elements a task: a few pages of each operand
constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves

// 0.5 (1 + tanh(u)) = sigmoid(2 u), which has no cancellation for negative u; 2 u = x (kLinear + kCubic x^2).
constexpr float kLinear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.07135481627159f;     // 0.044715 of it

template <typename T>
void Forward(const T* x, int64_t count, T* y) {
#pragma omp parallel for if (count > kSerialElements)
    for (int64_t begin = 0; begin < count; begin += kBlock) {
        const int64_t end = std::min(begin + kBlock, count);
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
            const float value = static_cast<float>(x[i]);
            Store(value * Sigmoid(value * (kLinear + kCubic * value * value)).value, y[i]);
        }
    }
}

template <typename T>
void Backward(const T* dy, const T* x, int64_t count, T* dx) {
#pragma omp parallel for if (count > kSerialElements)
    for (int64_t begin = 0; begin < count; begin += kBlock) {
        const int64_t end = std::min(begin + kBlock, count);
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
            const float value = static_cast<float>(x[i]);
            const float square = value * value;
            const SigmoidPair sigmoid = Sigmoid(value * (kLinear + kCubic * square));
            const float slope = kLinear + 3.0f * kCubic * square;  // of the sigmoid's argument
            const float derivative = sigmoid.value * (1.0f + value * sigmoid.complement * slope);
            Store(static_cast<float>(dy[i]) * derivative, dx[i]);
        }
    }
}

}  // namespace

std::shared_ptr<Tensor> GeluForward(const Tensor& x) {
    auto y = Tensor::Empty(x.shape(), x.dtype(), x.device());
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        Forward(x.data<T>(), x.num_elements(), y->data<T>());
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
        Backward(dy.data<T>(), x.data<T>(), x.num_elements(), dx->data<T>());
    });
    return dx;
}

}  // namespace infini_train::kernels::cpu
