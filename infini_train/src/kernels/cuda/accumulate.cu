#include "infini_train/include/kernels/accumulate.h"

#include <array>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/elementwise.cuh"

namespace infini_train::kernels::cuda {

void Accumulate(const Tensor& x, Tensor& sum, bool accumulate) {
    CHECK(x.shape() == sum.shape() && sum.dtype() == DataType::kFloat32)
        << "accumulate: x " << ToString(x.shape()) << ", sum " << ToString(sum.shape()) << " " << Name(sum.dtype());
    float* const sums = Elements<float>(sum);
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        if (accumulate) {
            LaunchElementwise(x.device(), x.num_elements(), Sum{}, std::array{sums}, Elements<T>(x),
                              static_cast<const float*>(sums));
        } else {
            // What is in sum is old and may be a NaN: not a sum with 0.
            LaunchElementwise(x.device(), x.num_elements(), Same{}, std::array{sums}, Elements<T>(x));
        }
    });
}

}  // namespace infini_train::kernels::cuda
