#include "infini_train/include/kernels/cast.h"

#include <cstdint>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kSerialElements = 1 << 15;  // below this waking a team costs more than it saves

template <typename From, typename To>
void Convert(const From* x, int64_t count, To* y) {
#pragma omp parallel for simd if (parallel : count > kSerialElements)
    for (int64_t i = 0; i < count; ++i) {
        Store(static_cast<float>(x[i]), y[i]);
    }
}

}  // namespace

void Cast(const Tensor& x, Tensor& y) {
    CHECK(x.shape() == y.shape()) << "cast: x " << ToString(x.shape()) << ", y " << ToString(y.shape());
    DispatchFloat(x.dtype(), [&](auto from) {
        DispatchFloat(y.dtype(),
                      [&](auto to) { Convert(x.data<decltype(from)>(), x.num_elements(), y.data<decltype(to)>()); });
    });
}

}  // namespace infini_train::kernels::cpu
