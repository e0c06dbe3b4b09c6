#include "infini_train/include/kernels/layer_norm.h"

#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/launch.cuh"
#include "infini_train/src/kernels/cuda/norm.cuh"
#include "infini_train/src/kernels/cuda/norm_backward.cuh"

namespace infini_train::kernels::cuda {
namespace {

void CheckParameter(const char* name, const Tensor& x, const char* parameter_name, const Tensor& parameter) {
    CHECK(parameter.shape() == Shape{x.dim(-1)} && parameter.dtype() == x.dtype())
        << name << ": x " << ToString(x.shape()) << " " << Name(x.dtype()) << ", " << parameter_name << " "
        << ToString(parameter.shape()) << " " << Name(parameter.dtype());
}

}  // namespace

LayerNormOutput LayerNormForward(const Tensor& x, const Tensor* branch, const Tensor& weight, const Tensor& bias,
                                 float eps) {
    CheckParameter("layer_norm_forward", x, "weight", weight);
    CheckParameter("layer_norm_forward", x, "bias", bias);
    CHECK_GT(eps, 0.0f) << "layer_norm_forward";
    CheckLike("layer_norm_forward", x, "branch", branch);
    const int64_t num_rows = x.num_rows();
    LayerNormOutput output = {.sum = branch == nullptr ? nullptr : Tensor::Empty(x.shape(), x.dtype(), x.device()),
                              .y = Tensor::Empty(x.shape(), x.dtype(), x.device()),
                              .mean = Tensor::Empty({num_rows}, DataType::kFloat32, x.device()),
                              .rstd = Tensor::Empty({num_rows}, DataType::kFloat32, x.device())};
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const NormForwardRows<T> rows = {.x = Elements<T>(x),
                                         .branch = branch == nullptr ? nullptr : Elements<T>(*branch),
                                         .weight = Elements<T>(weight),
                                         .bias = Elements<T>(bias),
                                         .sum = branch == nullptr ? nullptr : Elements<T>(*output.sum),
                                         .y = Elements<T>(*output.y),
                                         .mean = output.mean->data<float>(),
                                         .rstd = output.rstd->data<float>(),
                                         .num_rows = num_rows,
                                         .num_columns = x.dim(-1),
                                         .eps = eps};
        LaunchNormForward<true>(rows, LaunchStream(x.device()));
    });
    return output;
}

LayerNormGrad LayerNormBackward(const Tensor& dy, const Tensor* dsum, const Tensor& sum, const Tensor& weight,
                                const Tensor& mean, const Tensor& rstd) {
    CheckParameter("layer_norm_backward", sum, "weight", weight);
    CheckLike("layer_norm_backward", sum, "dy", &dy);
    CheckLike("layer_norm_backward", sum, "dsum", dsum);
    const int64_t num_rows = sum.num_rows();
    const int64_t num_columns = sum.dim(-1);
    CHECK(mean.num_elements() == num_rows && rstd.num_elements() == num_rows)
        << "layer_norm_backward: mean " << ToString(mean.shape()) << ", rstd " << ToString(rstd.shape()) << ", x "
        << ToString(sum.shape());
    LayerNormGrad grad = {.dx = Tensor::Empty(sum.shape(), sum.dtype(), sum.device()),
                          .dweight = Tensor::Empty({num_columns}, DataType::kFloat32, sum.device()),
                          .dbias = Tensor::Empty({num_columns}, DataType::kFloat32, sum.device())};
    DispatchFloat(sum.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const NormBackwardRows<T> rows = {.dy = Elements<T>(dy),
                                          .dsum = dsum == nullptr ? nullptr : Elements<T>(*dsum),
                                          .sum = Elements<T>(sum),
                                          .weight = Elements<T>(weight),
                                          .mean = mean.data<float>(),
                                          .rstd = rstd.data<float>(),
                                          .dx = Elements<T>(*grad.dx),
                                          .partial_sums = nullptr,
                                          .num_rows = num_rows,
                                          .num_columns = num_columns};
        LaunchNormBackward<true>(rows, sum.device(), grad.dweight->data<float>(), grad.dbias->data<float>());
    });
    return grad;
}

}  // namespace infini_train::kernels::cuda
