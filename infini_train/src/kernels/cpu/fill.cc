#include "infini_train/include/kernels/fill.h"

#include <cstdint>

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kSerialElements = 1 << 15;  // below this waking a team costs more than it saves

}  // namespace

void Fill(Tensor& x, float value) {
    const int64_t count = x.num_elements();
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        T* data = x.data<T>();
#pragma omp parallel for simd if (parallel : count > kSerialElements)
        for (int64_t i = 0; i < count; ++i) {
            Store(value, data[i]);
        }
    });
}

}  // namespace infini_train::kernels::cpu
