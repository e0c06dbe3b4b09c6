#include "infini_train/include/kernels/linear.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/kernels/gelu.h"
#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/fixed_order_sum.h"
#include "infini_train/src/kernels/cpu/gemm.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves

/// The shape of x with another last axis.
Shape WithLastAxis(const Tensor& x, int64_t extent) {
    Shape shape = x.shape();
    shape.back() = extent;
    return shape;
}

/// Adds up rows [begin, end) of dy.
template <typename T>
void SumRows(const T* dy, int64_t begin, int64_t end, int64_t num_columns, float* sum) {
    std::fill_n(sum, num_columns, 0.0f);
    for (int64_t n = begin; n < end; ++n) {
        const T* row = dy + n * num_columns;
#pragma omp simd
        for (int64_t c = 0; c < num_columns; ++c) {
            sum[c] += static_cast<float>(row[c]);
        }
    }
}

/// What linear_forward gives, checked under the name of the kernel that was called.
std::shared_ptr<Tensor> Forward(const char* name, const Tensor& x, const Tensor& weight, const Tensor* bias) {
    CHECK(IsFloat(x.dtype()) && weight.num_dims() == 2 && weight.dim(1) == x.dim(-1) && weight.dtype() == x.dtype())
        << name << ": x " << ToString(x.shape()) << " " << Name(x.dtype()) << ", weight " << ToString(weight.shape())
        << " " << Name(weight.dtype());
    CHECK(bias == nullptr || (bias->shape() == Shape{weight.dim(0)} && bias->dtype() == x.dtype()))
        << name << ": weight " << ToString(weight.shape()) << " " << Name(weight.dtype()) << ", bias "
        << ToString(bias->shape()) << " " << Name(bias->dtype());
    auto y = Tensor::Empty(WithLastAxis(x, weight.dim(0)), x.dtype(), x.device());
    Gemm({.m = x.num_rows(), .n = weight.dim(0), .k = weight.dim(1)},
         {.transpose_b = true, .input_dtype = x.dtype(), .output_dtype = x.dtype()},
         {.a = x.raw_data(),
          .b = weight.raw_data(),
          .bias = bias == nullptr ? nullptr : bias->raw_data(),
          .c = y->raw_data()});
    return y;
}

/// The same of linear_backward_input.
std::shared_ptr<Tensor> BackwardInput(const char* name, const Tensor& dy, const Tensor& weight) {
    CHECK(IsFloat(dy.dtype()) && weight.num_dims() == 2 && weight.dim(0) == dy.dim(-1) && weight.dtype() == dy.dtype())
        << name << ": dy " << ToString(dy.shape()) << " " << Name(dy.dtype()) << ", weight " << ToString(weight.shape())
        << " " << Name(weight.dtype());
    auto dx = Tensor::Empty(WithLastAxis(dy, weight.dim(1)), dy.dtype(), dy.device());
    Gemm({.m = dy.num_rows(), .n = weight.dim(1), .k = weight.dim(0)},
         {.input_dtype = dy.dtype(), .output_dtype = dy.dtype()},
         {.a = dy.raw_data(), .b = weight.raw_data(), .c = dx->raw_data()});
    return dx;
}

}  // namespace

std::shared_ptr<Tensor> LinearForward(const Tensor& x, const Tensor& weight, const Tensor* bias) {
    return Forward("linear_forward", x, weight, bias);
}

LinearGeluOutput LinearGeluForward(const Tensor& x, const Tensor& weight, const Tensor* bias) {
    auto pre = Forward("linear_gelu_forward", x, weight, bias);
    auto y = GeluForward(*pre);
    return {.pre = std::move(pre), .y = std::move(y)};
}

std::shared_ptr<Tensor> LinearBackwardInput(const Tensor& dy, const Tensor& weight) {
    return BackwardInput("linear_backward_input", dy, weight);
}

std::shared_ptr<Tensor> LinearBackwardInputGelu(const Tensor& dy, const Tensor& weight, const Tensor& pre) {
    CHECK(pre.shape() == WithLastAxis(dy, weight.dim(-1)) && pre.dtype() == dy.dtype())
        << "linear_backward_input_gelu: dy " << ToString(dy.shape()) << " " << Name(dy.dtype()) << ", weight "
        << ToString(weight.shape()) << ", pre " << ToString(pre.shape()) << " " << Name(pre.dtype());
    return GeluBackward(*BackwardInput("linear_backward_input_gelu", dy, weight), pre);
}

void LinearBackwardWeight(const Tensor& dy, const Tensor& x, Tensor& dweight, bool accumulate) {
    CHECK(IsFloat(dy.dtype()) && dy.dtype() == x.dtype() && dy.num_rows() == x.num_rows() &&
          dweight.shape() == Shape({dy.dim(-1), x.dim(-1)}) && dweight.dtype() == DataType::kFloat32)
        << "linear_backward_weight: dy " << ToString(dy.shape()) << " " << Name(dy.dtype()) << ", x "
        << ToString(x.shape()) << " " << Name(x.dtype()) << ", dweight " << ToString(dweight.shape()) << " "
        << Name(dweight.dtype());
    Gemm({.m = dy.dim(-1), .n = x.dim(-1), .k = dy.num_rows()},
         {.transpose_a = true, .accumulate = accumulate, .input_dtype = dy.dtype()},
         {.a = dy.raw_data(), .b = x.raw_data(), .c = dweight.raw_data()});
}

void LinearBackwardBias(const Tensor& dy, Tensor& dbias, bool accumulate) {
    CHECK(dbias.shape() == Shape{dy.dim(-1)} && dbias.dtype() == DataType::kFloat32)
        << "linear_backward_bias: dy " << ToString(dy.shape()) << ", dbias " << ToString(dbias.shape()) << " "
        << Name(dbias.dtype());
    const int64_t num_columns = dy.dim(-1);
    const RowBlocks blocks(dy.num_rows());
    const auto partial_sums = Tensor::Empty({blocks.num_blocks, num_columns}, DataType::kFloat32, dy.device());
    float* sums = partial_sums->data<float>();
    DispatchFloat(dy.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* dy_data = dy.data<T>();
#pragma omp parallel for if (dy.num_elements() > kSerialElements)
        for (int64_t block = 0; block < blocks.num_blocks; ++block) {
            SumRows(dy_data, blocks.begin(block), blocks.end(block), num_columns, sums + block * num_columns);
        }
    });
    AddBlocks(sums, blocks.num_blocks, num_columns, accumulate, dbias.data<float>());
}

}  // namespace infini_train::kernels::cpu
