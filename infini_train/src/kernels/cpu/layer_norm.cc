#include "infini_train/include/kernels/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/fixed_order_sum.h"
#include "infini_train/src/kernels/cpu/residual.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves

void CheckParameter(const char* name, const Tensor& x, const char* parameter_name, const Tensor& parameter) {
    CHECK(parameter.shape() == Shape{x.dim(-1)} && parameter.dtype() == x.dtype())
        << name << ": x " << ToString(x.shape()) << " " << Name(x.dtype()) << ", " << parameter_name << " "
        << ToString(parameter.shape()) << " " << Name(parameter.dtype());
}

template <typename T>
void ForwardRow(const T* x, const T* weight, const T* bias, int64_t num_columns, float eps, T* y, float* mean,
                float* rstd) {
    const float count = static_cast<float>(num_columns);
    const float center = SumTerms(num_columns, [x](int64_t c) { return static_cast<float>(x[c]); }) / count;
    // A second pass over the row, which is in the cache by now: mean(x^2) - mean(x)^2 would cancel.
    const float variance = SumTerms(num_columns,
                                    [=](int64_t c) {
                                        const float distance = static_cast<float>(x[c]) - center;
                                        return distance * distance;
                                    }) /
                           count;
    const float scale = 1.0f / std::sqrt(variance + eps);
#pragma omp simd
    for (int64_t c = 0; c < num_columns; ++c) {
        const float normal = (static_cast<float>(x[c]) - center) * scale;
        Store(normal * static_cast<float>(weight[c]) + static_cast<float>(bias[c]), y[c]);
    }
    *mean = center;
    *rstd = scale;
}

/// Writes dx and adds the row's part to dweight and dbias. dsum is only read where there is one.
template <bool kHasDsum, typename T>
void BackwardRow(const T* dy, const T* dsum, const T* x, const T* weight, float mean, float rstd, int64_t num_columns,
                 T* dx, float* dweight, float* dbias) {
    const float count = static_cast<float>(num_columns);
    const float mean_g =
        SumTerms(num_columns, [=](int64_t c) { return static_cast<float>(dy[c]) * static_cast<float>(weight[c]); }) /
        count;
    const float mean_gh = SumTerms(num_columns,
                                   [=](int64_t c) {
                                       return static_cast<float>(dy[c]) * static_cast<float>(weight[c]) *
                                              (static_cast<float>(x[c]) - mean);
                                   }) *
                          rstd / count;
#pragma omp simd
    for (int64_t c = 0; c < num_columns; ++c) {
        const float grad = static_cast<float>(dy[c]);
        const float normal = (static_cast<float>(x[c]) - mean) * rstd;
        float through_norm = rstd * (grad * static_cast<float>(weight[c]) - mean_g - normal * mean_gh);
        if constexpr (kHasDsum) {
            through_norm += static_cast<float>(dsum[c]);
        }
        Store(through_norm, dx[c]);
        dweight[c] += grad * normal;
        dbias[c] += grad;
    }
}

}  // namespace

LayerNormOutput LayerNormForward(const Tensor& x, const Tensor* branch, const Tensor& weight, const Tensor& bias,
                                 float eps) {
    CheckLike("layer_norm_forward", x, "branch", branch);
    CheckParameter("layer_norm_forward", x, "weight", weight);
    CheckParameter("layer_norm_forward", x, "bias", bias);
    CHECK_GT(eps, 0.0f) << "layer_norm_forward";
    const int64_t num_rows = x.num_rows();
    const int64_t num_columns = x.dim(-1);
    LayerNormOutput output = {.sum = branch == nullptr ? nullptr : Tensor::Empty(x.shape(), x.dtype(), x.device()),
                              .y = Tensor::Empty(x.shape(), x.dtype(), x.device()),
                              .mean = Tensor::Empty({num_rows}, DataType::kFloat32, x.device()),
                              .rstd = Tensor::Empty({num_rows}, DataType::kFloat32, x.device())};
    float* mean = output.mean->data<float>();
    float* rstd = output.rstd->data<float>();
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* x_data = x.data<T>();
        const T* branch_data = branch == nullptr ? nullptr : branch->data<T>();
        T* sum = branch == nullptr ? nullptr : output.sum->data<T>();
        const T* weight_data = weight.data<T>();
        const T* bias_data = bias.data<T>();
        T* y = output.y->data<T>();
#pragma omp parallel for if (x.num_elements() > kSerialElements)
        for (int64_t n = 0; n < num_rows; ++n) {
            const int64_t row = n * num_columns;
            const T* values = x_data + row;
            if (branch_data != nullptr) {
                AddRow(values, branch_data + row, num_columns, sum + row);
                values = sum + row;
            }
            ForwardRow(values, weight_data, bias_data, num_columns, eps, y + row, mean + n, rstd + n);
        }
    });
    return output;
}

LayerNormGrad LayerNormBackward(const Tensor& dy, const Tensor* dsum, const Tensor& x, const Tensor& weight,
                                const Tensor& mean, const Tensor& rstd) {
    CheckParameter("layer_norm_backward", x, "weight", weight);
    CheckLike("layer_norm_backward", x, "dy", &dy);
    CheckLike("layer_norm_backward", x, "dsum", dsum);
    const RowBlocks blocks(x.num_rows());
    CHECK(mean.num_elements() == blocks.num_rows && rstd.num_elements() == blocks.num_rows)
        << "layer_norm_backward: mean " << ToString(mean.shape()) << ", rstd " << ToString(rstd.shape()) << ", x "
        << ToString(x.shape());
    const int64_t num_columns = x.dim(-1);
    LayerNormGrad grad = {.dx = Tensor::Empty(x.shape(), x.dtype(), x.device()),
                          .dweight = Tensor::Empty({num_columns}, DataType::kFloat32, x.device()),
                          .dbias = Tensor::Empty({num_columns}, DataType::kFloat32, x.device())};
    const auto partial_sums = Tensor::Empty({2, blocks.num_blocks, num_columns}, DataType::kFloat32, x.device());
    const float* mean_data = mean.data<float>();
    const float* rstd_data = rstd.data<float>();
    float* dweight = partial_sums->data<float>();
    float* dbias = dweight + blocks.num_blocks * num_columns;
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* dy_data = dy.data<T>();
        const T* dsum_data = dsum == nullptr ? nullptr : dsum->data<T>();
        const T* x_data = x.data<T>();
        const T* weight_data = weight.data<T>();
        T* dx = grad.dx->data<T>();
#pragma omp parallel for if (x.num_elements() > kSerialElements)
        for (int64_t block = 0; block < blocks.num_blocks; ++block) {
            float* block_dweight = dweight + block * num_columns;
            float* block_dbias = dbias + block * num_columns;
            std::fill_n(block_dweight, num_columns, 0.0f);
            std::fill_n(block_dbias, num_columns, 0.0f);
            for (int64_t n = blocks.begin(block); n < blocks.end(block); ++n) {
                const int64_t row = n * num_columns;
                if (dsum_data != nullptr) {
                    BackwardRow<true>(dy_data + row, dsum_data + row, x_data + row, weight_data, mean_data[n],
                                      rstd_data[n], num_columns, dx + row, block_dweight, block_dbias);
                } else {
                    BackwardRow<false>(dy_data + row, dsum_data, x_data + row, weight_data, mean_data[n], rstd_data[n],
                                       num_columns, dx + row, block_dweight, block_dbias);
                }
            }
        }
    });
    AddBlocks(dweight, blocks.num_blocks, num_columns, false, grad.dweight->data<float>());
    AddBlocks(dbias, blocks.num_blocks, num_columns, false, grad.dbias->data<float>());
    return grad;
}

}  // namespace infini_train::kernels::cpu
