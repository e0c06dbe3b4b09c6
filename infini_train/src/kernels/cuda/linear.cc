#include "infini_train/include/kernels/linear.h"

#include <cstdint>
#include <memory>

#include "glog/logging.h"

#include "infini_train/include/kernels/gelu.h"
#include "infini_train/src/kernels/cuda/gemm.h"
#include "infini_train/src/kernels/cuda/linear_bias.h"

namespace infini_train::kernels::cuda {
namespace {

/// The tensor, or a copy of it where its address is no multiple of 16: the library's algorithms for such addresses are
/// slow, and one rounded its bfloat16 sums twice.
class Aligned {
 public:
    explicit Aligned(const Tensor& x) : tensor_(&x) {
        if (reinterpret_cast<uintptr_t>(x.raw_data()) % 16 != 0) {
            copy_ = Tensor::Empty(x.shape(), x.dtype(), x.device());
            copy_->CopyFrom(x);
            tensor_ = copy_.get();
        }
    }

    const void* data() const { return tensor_->raw_data(); }

 private:
    std::shared_ptr<Tensor> copy_;
    const Tensor* tensor_;
};

/// The shape of x with another last axis.
Shape WithLastAxis(const Tensor& x, int64_t extent) {
    Shape shape = x.shape();
    shape.back() = extent;
    return shape;
}

void CheckForward(const char* name, const Tensor& x, const Tensor& weight, const Tensor* bias) {
    CHECK(IsFloat(x.dtype()) && weight.num_dims() == 2 && weight.dim(1) == x.dim(-1) && weight.dtype() == x.dtype())
        << name << ": x " << ToString(x.shape()) << " " << Name(x.dtype()) << ", weight " << ToString(weight.shape())
        << " " << Name(weight.dtype());
    CHECK(bias == nullptr || (bias->shape() == Shape{weight.dim(0)} && bias->dtype() == x.dtype()))
        << name << ": weight " << ToString(weight.shape()) << " " << Name(weight.dtype()) << ", bias "
        << ToString(bias->shape()) << " " << Name(bias->dtype());
}

void CheckBackwardInput(const char* name, const Tensor& dy, const Tensor& weight) {
    CHECK(IsFloat(dy.dtype()) && weight.num_dims() == 2 && weight.dim(0) == dy.dim(-1) && weight.dtype() == dy.dtype())
        << name << ": dy " << ToString(dy.shape()) << " " << Name(dy.dtype()) << ", weight " << ToString(weight.shape())
        << " " << Name(weight.dtype());
}

GemmShape ForwardShape(const Tensor& x, const Tensor& weight) {
    return {.m = x.num_rows(), .n = weight.dim(0), .k = weight.dim(1)};
}

GemmShape BackwardInputShape(const Tensor& dy, const Tensor& weight) {
    return {.m = dy.num_rows(), .n = weight.dim(1), .k = weight.dim(0)};
}

GemmOptions ForwardOptions(DataType dtype) {
    return {.transpose_b = true, .input_dtype = dtype, .output_dtype = dtype};
}

/// y = x weight^T + bias
void Forward(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y) {
    const GemmShape shape = ForwardShape(x, weight);
    const Aligned a(x);
    const Aligned b(weight);
    if (TryGemm(
            x.device(), shape, ForwardOptions(x.dtype()),
            {.a = a.data(), .b = b.data(), .c = y.raw_data(), .bias = bias == nullptr ? nullptr : bias->raw_data()})) {
        return;
    }
    // In float32 until the bias is there: a sum that is rounded twice is not what the contract says.
    CHECK_NOTNULL(bias);
    const auto sums = Tensor::Empty(y.shape(), DataType::kFloat32, y.device());
    Gemm(x.device(), shape, {.transpose_b = true, .input_dtype = x.dtype()},
         {.a = a.data(), .b = b.data(), .c = sums->raw_data()});
    AddBias(*sums, *bias, y);
}

}  // namespace

std::shared_ptr<Tensor> LinearForward(const Tensor& x, const Tensor& weight, const Tensor* bias) {
    CheckForward("linear_forward", x, weight, bias);
    auto y = Tensor::Empty(WithLastAxis(x, weight.dim(0)), x.dtype(), x.device());
    Forward(x, weight, bias, *y);
    return y;
}

LinearGeluOutput LinearGeluForward(const Tensor& x, const Tensor& weight, const Tensor* bias) {
    CheckForward("linear_gelu_forward", x, weight, bias);
    auto pre = Tensor::Empty(WithLastAxis(x, weight.dim(0)), x.dtype(), x.device());
    auto y = Tensor::Empty(pre->shape(), x.dtype(), x.device());
    const Aligned a(x);
    const Aligned b(weight);
    if (!TryGemm(x.device(), ForwardShape(x, weight), ForwardOptions(x.dtype()),
                 {.a = a.data(),
                  .b = b.data(),
                  .c = y->raw_data(),
                  .bias = bias == nullptr ? nullptr : bias->raw_data(),
                  .pre_output = pre->raw_data()})) {
        y.reset();  // its memory is free for the other one
        Forward(x, weight, bias, *pre);
        y = GeluForward(*pre);
    }
    return {.pre = pre, .y = y};
}

std::shared_ptr<Tensor> LinearBackwardInput(const Tensor& dy, const Tensor& weight) {
    CheckBackwardInput("linear_backward_input", dy, weight);
    auto dx = Tensor::Empty(WithLastAxis(dy, weight.dim(1)), dy.dtype(), dy.device());
    Gemm(dy.device(), BackwardInputShape(dy, weight), {.input_dtype = dy.dtype(), .output_dtype = dy.dtype()},
         {.a = Aligned(dy).data(), .b = Aligned(weight).data(), .c = dx->raw_data()});
    return dx;
}

std::shared_ptr<Tensor> LinearBackwardInputGelu(const Tensor& dy, const Tensor& weight, const Tensor& pre) {
    CheckBackwardInput("linear_backward_input_gelu", dy, weight);
    CHECK(pre.shape() == WithLastAxis(dy, weight.dim(1)) && pre.dtype() == dy.dtype())
        << "linear_backward_input_gelu: dy " << ToString(dy.shape()) << " " << Name(dy.dtype()) << ", weight "
        << ToString(weight.shape()) << ", pre " << ToString(pre.shape()) << " " << Name(pre.dtype());
    auto dpre = Tensor::Empty(pre.shape(), pre.dtype(), pre.device());
    if (!TryGemm(
            dy.device(), BackwardInputShape(dy, weight), {.input_dtype = dy.dtype(), .output_dtype = dy.dtype()},
            {.a = Aligned(dy).data(), .b = Aligned(weight).data(), .c = dpre->raw_data(), .pre = pre.raw_data()})) {
        dpre.reset();
        // In bfloat16 the sums are rounded here once more than above.
        dpre = GeluBackward(*LinearBackwardInput(dy, weight), pre);
    }
    return dpre;
}

void LinearBackwardWeight(const Tensor& dy, const Tensor& x, Tensor& dweight, bool accumulate) {
    CHECK(IsFloat(dy.dtype()) && dy.dtype() == x.dtype() && dy.num_rows() == x.num_rows() &&
          dweight.shape() == Shape({dy.dim(-1), x.dim(-1)}) && dweight.dtype() == DataType::kFloat32)
        << "linear_backward_weight: dy " << ToString(dy.shape()) << " " << Name(dy.dtype()) << ", x "
        << ToString(x.shape()) << " " << Name(x.dtype()) << ", dweight " << ToString(dweight.shape()) << " "
        << Name(dweight.dtype());
    Gemm(dy.device(), {.m = dy.dim(-1), .n = x.dim(-1), .k = dy.num_rows()},
         {.transpose_a = true, .accumulate = accumulate, .input_dtype = dy.dtype()},
         {.a = Aligned(dy).data(), .b = Aligned(x).data(), .c = dweight.raw_data()});
}

}  // namespace infini_train::kernels::cuda
