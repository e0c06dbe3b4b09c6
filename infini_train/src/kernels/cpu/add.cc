#include "infini_train/include/kernels/add.h"

#include <cstdint>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kSerialElements = 1 << 15;  // below this waking a team costs more than it saves

}  // namespace

std::shared_ptr<Tensor> Add(const Tensor& a, const Tensor& b) {
    CHECK(a.shape() == b.shape() && a.dtype() == b.dtype())
        << "add: a " << ToString(a.shape()) << " " << Name(a.dtype()) << ", b " << ToString(b.shape()) << " "
        << Name(b.dtype());
    auto y = Tensor::Empty(a.shape(), a.dtype(), a.device());
    const int64_t count = a.num_elements();
    DispatchFloat(a.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* a_data = a.data<T>();
        const T* b_data = b.data<T>();
        T* y_data = y->data<T>();
#pragma omp parallel for simd if (parallel : count > kSerialElements)
        for (int64_t i = 0; i < count; ++i) {
            Store(static_cast<float>(a_data[i]) + static_cast<float>(b_data[i]), y_data[i]);
        }
    });
    return y;
}

}  // namespace infini_train::kernels::cpu
