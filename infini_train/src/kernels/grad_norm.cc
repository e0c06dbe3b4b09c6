#include "infini_train/include/kernels/grad_norm.h"

#include "glog/logging.h"

namespace infini_train::kernels {

void CheckSquaredSums(std::span<const Tensor* const> grads, const Tensor& squared_sums) {
    const auto num_grads = static_cast<int64_t>(grads.size());
    CHECK(squared_sums.shape() == Shape{num_grads} && squared_sums.dtype() == DataType::kFloat32)
        << "squared_sums: " << ToString(squared_sums.shape()) << " " << Name(squared_sums.dtype()) << " for "
        << num_grads << " gradients, wanted [" << num_grads << "] float32";
    for (const Tensor* grad : grads) {
        CHECK(grad != nullptr) << "squared_sums: a gradient that is not there";
        CHECK(grad->dtype() == DataType::kFloat32 && grad->device() == squared_sums.device())
            << "squared_sums: a gradient " << ToString(grad->shape()) << " " << Name(grad->dtype()) << " on "
            << ToString(grad->device()) << ", wanted float32 on " << ToString(squared_sums.device());
    }
}

void CheckGradScale(const Tensor& squared_sums, const Tensor& num_valid, float max_norm) {
    CHECK(squared_sums.num_dims() == 1 && squared_sums.dtype() == DataType::kFloat32)
        << "grad_scale: squared_sums " << ToString(squared_sums.shape()) << " " << Name(squared_sums.dtype())
        << ", wanted [n] float32";
    CHECK(num_valid.shape() == Shape{1} && num_valid.dtype() == DataType::kInt64)
        << "grad_scale: num_valid " << ToString(num_valid.shape()) << " " << Name(num_valid.dtype())
        << ", wanted [1] int64";
    CHECK(squared_sums.device() == num_valid.device())
        << "grad_scale: squared_sums on " << ToString(squared_sums.device()) << ", num_valid on "
        << ToString(num_valid.device());
    CHECK_GE(max_norm, 0.0f) << "grad_scale: max_norm";
}

}  // namespace infini_train::kernels
