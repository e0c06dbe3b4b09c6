#include "infini_train/include/kernels/cast.h"

#include <array>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/elementwise.cuh"

namespace infini_train::kernels::cuda {

void Cast(const Tensor& x, Tensor& y) {
    CHECK(x.shape() == y.shape()) << "cast: x " << ToString(x.shape()) << ", y " << ToString(y.shape());
    DispatchFloat(x.dtype(), [&](auto from) {
        DispatchFloat(y.dtype(), [&](auto to) {
            LaunchElementwise(x.device(), x.num_elements(), Same{}, std::array{Elements<decltype(to)>(y)},
                              Elements<decltype(from)>(x));
        });
    });
}

}  // namespace infini_train::kernels::cuda
