#include "infini_train/include/kernels/rms_norm.h"

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

void CheckArguments(const char* name, const Tensor& x, const Tensor& weight) {
    CHECK(weight.shape() == Shape{x.dim(-1)} && weight.dtype() == x.dtype())
        << name << ": x " << ToString(x.shape()) << " " << Name(x.dtype()) << ", weight " << ToString(weight.shape())
        << " " << Name(weight.dtype());
}

template <typename T>
void ForwardRow(const T* x, const T* weight, int64_t num_columns, float eps, T* y, float* rstd) {
    const float squares = SumTerms(num_columns, [x](int64_t c) {
        const float value = static_cast<float>(x[c]);
        return value * value;
    });
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(num_columns) + eps);
#pragma omp simd
    for (int64_t c = 0; c < num_columns; ++c) {
        Store(static_cast<float>(x[c]) * scale * static_cast<float>(weight[c]), y[c]);
    }
    *rstd = scale;
}

/// Writes dx and adds the row's part to dweight. dsum is only read where there is one.
template <bool kHasDsum, typename T>
void BackwardRow(const T* dy, const T* dsum, const T* x, const T* weight, float rstd, int64_t num_columns, T* dx,
                 float* dweight) {
    const float products = SumTerms(num_columns, [=](int64_t c) {
        return static_cast<float>(dy[c]) * static_cast<float>(weight[c]) * static_cast<float>(x[c]);
    });
    const float mean = products * rstd / static_cast<float>(num_columns);
#pragma omp simd
    for (int64_t c = 0; c < num_columns; ++c) {
        const float grad = static_cast<float>(dy[c]);
        const float normal = static_cast<float>(x[c]) * rstd;
        float through_norm = rstd * (grad * static_cast<float>(weight[c]) - normal * mean);
        if constexpr (kHasDsum) {
            through_norm += static_cast<float>(dsum[c]);
        }
        Store(through_norm, dx[c]);
        dweight[c] += grad * normal;
    }
}

}  // namespace

RmsNormOutput RmsNormForward(const Tensor& x, const Tensor* branch, const Tensor& weight, float eps) {
    CheckLike("rms_norm_forward", x, "branch", branch);
    CheckArguments("rms_norm_forward", x, weight);
    CHECK_GT(eps, 0.0f) << "rms_norm_forward";
    const int64_t num_rows = x.num_rows();
    const int64_t num_columns = x.dim(-1);
    RmsNormOutput output = {.sum = branch == nullptr ? nullptr : Tensor::Empty(x.shape(), x.dtype(), x.device()),
                            .y = Tensor::Empty(x.shape(), x.dtype(), x.device()),
                            .rstd = Tensor::Empty({num_rows}, DataType::kFloat32, x.device())};
    float* rstd = output.rstd->data<float>();
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* x_data = x.data<T>();
        const T* branch_data = branch == nullptr ? nullptr : branch->data<T>();
        T* sum = branch == nullptr ? nullptr : output.sum->data<T>();
        const T* weight_data = weight.data<T>();
        T* y = output.y->data<T>();
#pragma omp parallel for if (x.num_elements() > kSerialElements)
        for (int64_t n = 0; n < num_rows; ++n) {
            const int64_t row = n * num_columns;
            const T* values = x_data + row;
            if (branch_data != nullptr) {
                AddRow(values, branch_data + row, num_columns, sum + row);
                values = sum + row;
            }
            ForwardRow(values, weight_data, num_columns, eps, y + row, rstd + n);
        }
    });
    return output;
}

RmsNormGrad RmsNormBackward(const Tensor& dy, const Tensor* dsum, const Tensor& x, const Tensor& weight,
                            const Tensor& rstd) {
    CheckArguments("rms_norm_backward", x, weight);
    CheckLike("rms_norm_backward", x, "dy", &dy);
    CheckLike("rms_norm_backward", x, "dsum", dsum);
    const RowBlocks blocks(x.num_rows());
    CHECK_EQ(rstd.num_elements(), blocks.num_rows) << "rms_norm_backward: rstd of x " << ToString(x.shape());
    const int64_t num_columns = x.dim(-1);
    RmsNormGrad grad = {.dx = Tensor::Empty(x.shape(), x.dtype(), x.device()),
                        .dweight = Tensor::Empty({num_columns}, DataType::kFloat32, x.device())};
    const auto partial_sums = Tensor::Empty({blocks.num_blocks, num_columns}, DataType::kFloat32, x.device());
    const float* rstd_data = rstd.data<float>();
    float* dweight = partial_sums->data<float>();
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
            std::fill_n(block_dweight, num_columns, 0.0f);
            for (int64_t n = blocks.begin(block); n < blocks.end(block); ++n) {
                const int64_t row = n * num_columns;
                if (dsum_data != nullptr) {
                    BackwardRow<true>(dy_data + row, dsum_data + row, x_data + row, weight_data, rstd_data[n],
                                      num_columns, dx + row, block_dweight);
                } else {
                    BackwardRow<false>(dy_data + row, dsum_data, x_data + row, weight_data, rstd_data[n], num_columns,
                                       dx + row, block_dweight);
                }
            }
        }
    });
    AddBlocks(dweight, blocks.num_blocks, num_columns, false, grad.dweight->data<float>());
    return grad;
}

}  // namespace infini_train::kernels::cpu
