#include "infini_train/include/kernels/accumulate.h"

#include <cstdint>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kSerialElements = 1 << 15;  // below this waking a team costs more than it saves

template <typename T>
void Accumulate(const T* x, int64_t count, bool accumulate, float* sum) {
    if (accumulate) {
#pragma omp parallel for simd if (parallel : count > kSerialElements)
        for (int64_t i = 0; i < count; ++i) {
            sum[i] += static_cast<float>(x[i]);
        }
    } else {
        // What is in sum is old and may be a NaN: not a sum with 0.
#pragma omp parallel for simd if (parallel : count > kSerialElements)
        for (int64_t i = 0; i < count; ++i) {
            sum[i] = static_cast<float>(x[i]);
        }
    }
}

}  // namespace

void Accumulate(const Tensor& x, Tensor& sum, bool accumulate) {
    CHECK(x.shape() == sum.shape() && sum.dtype() == DataType::kFloat32)
        << "accumulate: x " << ToString(x.shape()) << ", sum " << ToString(sum.shape()) << " " << Name(sum.dtype());
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        Accumulate(x.data<T>(), x.num_elements(), accumulate, sum.data<float>());
    });
}

}  // namespace infini_train::kernels::cpu
