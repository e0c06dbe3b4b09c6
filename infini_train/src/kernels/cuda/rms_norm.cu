#include "infini_train/include/kernels/rms_norm.h"

#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/launch.cuh"
#include "infini_train/src/kernels/cuda/norm.cuh"
#include "infini_train/src/kernels/cuda/norm_backward.cuh"

namespace infini_train::kernels::cuda {
namespace {

void CheckArguments(const char* name, const Tensor& x, const Tensor& weight) {
    CHECK(weight.shape() == Shape{x.dim(-1)} && weight.dtype() == x.dtype())
        << name << ": x " << ToString(x.shape()) << " " << Name(x.dtype()) << ", weight " << ToString(weight.shape())
        << " " << Name(weight.dtype());
}

}  // namespace

RmsNormOutput RmsNormForward(const Tensor& x, const Tensor* branch, const Tensor& weight, float eps) {
    CheckArguments("rms_norm_forward", x, weight);
    CHECK_GT(eps, 0.0f) << "rms_norm_forward";
    CheckLike("rms_norm_forward", x, "branch", branch);
    const int64_t num_rows = x.num_rows();
    RmsNormOutput output = {.sum = branch == nullptr ? nullptr : Tensor::Empty(x.shape(), x.dtype(), x.device()),
                            .y = Tensor::Empty(x.shape(), x.dtype(), x.device()),
                            .rstd = Tensor::Empty({num_rows}, DataType::kFloat32, x.device())};
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const NormForwardRows<T> rows = {.x = Elements<T>(x),
                                         .branch = branch == nullptr ? nullptr : Elements<T>(*branch),
                                         .weight = Elements<T>(weight),
                                         .bias = nullptr,
                                         .sum = branch == nullptr ? nullptr : Elements<T>(*output.sum),
                                         .y = Elements<T>(*output.y),
                                         .mean = nullptr,
                                         .rstd = output.rstd->data<float>(),
                                         .num_rows = num_rows,
                                         .num_columns = x.dim(-1),
                                         .eps = eps};
        LaunchNormForward<false>(rows, LaunchStream(x.device()));
    });
    return output;
}

RmsNormGrad RmsNormBackward(const Tensor& dy, const Tensor* dsum, const Tensor& sum, const Tensor& weight,
                            const Tensor& rstd) {
    CheckArguments("rms_norm_backward", sum, weight);
    CheckLike("rms_norm_backward", sum, "dy", &dy);
    CheckLike("rms_norm_backward", sum, "dsum", dsum);
    const int64_t num_rows = sum.num_rows();
    const int64_t num_columns = sum.dim(-1);
    CHECK_EQ(rstd.num_elements(), num_rows) << "rms_norm_backward: rstd of x " << ToString(sum.shape());
    RmsNormGrad grad = {.dx = Tensor::Empty(sum.shape(), sum.dtype(), sum.device()),
                        .dweight = Tensor::Empty({num_columns}, DataType::kFloat32, sum.device())};
    DispatchFloat(sum.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const NormBackwardRows<T> rows = {.dy = Elements<T>(dy),
                                          .dsum = dsum == nullptr ? nullptr : Elements<T>(*dsum),
                                          .sum = Elements<T>(sum),
                                          .weight = Elements<T>(weight),
                                          .mean = nullptr,
                                          .rstd = rstd.data<float>(),
                                          .dx = Elements<T>(*grad.dx),
                                          .partial_sums = nullptr,
                                          .num_rows = num_rows,
                                          .num_columns = num_columns};
        LaunchNormBackward<false>(rows, sum.device(), grad.dweight->data<float>(), nullptr);
    });
    return grad;
}

}  // namespace infini_train::kernels::cuda
