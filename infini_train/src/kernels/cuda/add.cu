#include "infini_train/include/kernels/add.h"

#include <array>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/elementwise.cuh"

namespace infini_train::kernels::cuda {

std::shared_ptr<Tensor> Add(const Tensor& a, const Tensor& b) {
    CHECK(a.shape() == b.shape() && a.dtype() == b.dtype())
        << "add: a " << ToString(a.shape()) << " " << Name(a.dtype()) << ", b " << ToString(b.shape()) << " "
        << Name(b.dtype());
    auto y = Tensor::Empty(a.shape(), a.dtype(), a.device());
    DispatchFloat(a.dtype(), [&](auto zero) {
        using T = decltype(zero);
        LaunchElementwise(a.device(), a.num_elements(), Sum{}, std::array{Elements<T>(*y)}, Elements<T>(a),
                          Elements<T>(b));
    });
    return y;
}

}  // namespace infini_train::kernels::cuda
