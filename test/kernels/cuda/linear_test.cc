#include "infini_train/include/kernels/linear.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/kernels/fill.h"
#include "test/kernels/cuda/poison.h"
#include "test/support/cuda_compare.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::CopyTo;
using test::ExpectClose;
using test::PoisonFreeMemory;
using test::RandomTensor;
using test::SameBytes;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;

// A sum that is rounded to bfloat16 once is off by half a unit in the last place: 2^-8 of it at most.
constexpr double kBFloat16Rounding = 0x1.01p-8;
// For float32 sums of some hundred terms: above their own rounding, far below TF32's 2^-11.
constexpr double kFloat32Rounding = 1e-5;

double Gelu(double x) {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

double GeluSlope(double x) {
    const double scale = std::sqrt(2.0 / M_PI);
    const double tanh = std::tanh(scale * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * scale * (1.0 + 3.0 * 0.044715 * x * x);
}

/// The same values in float32 on the CPU: its results are the wanted ones before they are rounded.
std::shared_ptr<Tensor> ToCpuFloat32(const Tensor& x) {
    const std::vector<double> values = ToDoubles(x);
    return Tensor::FromVector(std::vector<float>(values.begin(), values.end()), x.shape(), MakeCpuDevice());
}

/// The same values at an address that is a multiple of the element size only.
std::shared_ptr<Tensor> Unaligned(const Tensor& x) {
    const auto memory = Tensor::Empty({x.num_elements() + 1}, x.dtype(), x.device());
    auto copy = memory->Slice(1, x.num_elements() + 1)->View(x.shape());
    copy->CopyFrom(x);
    return copy;
}

/// |got - wanted| <= allowed, element by element.
void ExpectWithin(const Tensor& got, const std::vector<double>& wanted, const std::vector<double>& allowed) {
    const std::vector<double> values = ToDoubles(got);
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::abs(values[i] - wanted[i]), allowed[i])
            << "element " << i << ": " << values[i] << ", wanted " << wanted[i];
    }
}

struct Sizes {
    int64_t rows = 0;
    int64_t inputs = 0;
    int64_t outputs = 0;
};

class CudaLinear : public testing::TestWithParam<std::tuple<DataType, Sizes>> {
 protected:
    void SetUp() override {
        INFINI_SKIP_WITHOUT_CUDA();
        device_ = MakeCudaDevice(0);
        // So that sums over the inputs have a deviation of 2, which is where gelu bends.
        weight_scale_ = 6.0f / std::sqrt(static_cast<float>(std::max(int64_t{1}, sizes_.inputs)));
        x_ = RandomTensor({sizes_.rows, sizes_.inputs}, dtype_, device_, 1);
        weight_ = RandomTensor({sizes_.outputs, sizes_.inputs}, dtype_, device_, 2, weight_scale_);
        bias_ = RandomTensor({sizes_.outputs}, dtype_, device_, 3);
        dy_ = RandomTensor({sizes_.rows, sizes_.outputs}, dtype_, device_, 4);
        pre_ = RandomTensor({sizes_.rows, sizes_.inputs}, dtype_, device_, 5, 4.0f);
    }

    double rounding() const { return dtype_ == DataType::kBFloat16 ? kBFloat16Rounding : kFloat32Rounding; }
    /// Of two orders of a float32 sum of products with factors below 1 and the scale.
    static double SumRounding(int64_t terms, double scale = 1.0) {
        return 1e-7 * scale * static_cast<double>(terms + 4);
    }
    void Poison(const Shape& shape, DataType dtype) const { PoisonFreeMemory(shape, dtype, device_); }
    std::shared_ptr<Tensor> Parameter(const Shape& shape, bool accumulate) const {
        auto grad = RandomTensor(shape, DataType::kFloat32, device_, 6);
        if (!accumulate) {
            fill(kCuda, *grad, std::numeric_limits<float>::quiet_NaN());
        }
        return grad;
    }

    void ExpectForward(const Tensor& x, const Tensor& weight, const Tensor* bias) const {
        const auto cpu_bias = bias == nullptr ? nullptr : ToCpuFloat32(*bias);
        const auto wanted = linear_forward(kCpu, *ToCpuFloat32(x), *ToCpuFloat32(weight), cpu_bias.get());
        Poison({sizes_.rows, sizes_.outputs}, dtype_);
        const auto y = linear_forward(kCuda, x, weight, bias);
        ASSERT_EQ(y->dtype(), dtype_);
        ExpectClose(*ToCpuFloat32(*y), *wanted, rounding(), SumRounding(sizes_.inputs, weight_scale_));
    }
    void ExpectWeightGradient(const Tensor& dy, const Tensor& x, bool accumulate) const {
        const auto dweight = Parameter(weight_->shape(), accumulate);
        const auto wanted = ToCpuFloat32(*dweight);
        linear_backward_weight(kCpu, *ToCpuFloat32(dy), *ToCpuFloat32(x), *wanted, accumulate);
        linear_backward_weight(kCuda, dy, x, *dweight, accumulate);
        ExpectClose(*ToCpuFloat32(*dweight), *wanted, kFloat32Rounding, SumRounding(sizes_.rows));
    }

    DataType dtype_ = std::get<0>(GetParam());
    Sizes sizes_ = std::get<1>(GetParam());
    float weight_scale_ = 1.0f;
    Device device_;
    std::shared_ptr<Tensor> x_;
    std::shared_ptr<Tensor> weight_;
    std::shared_ptr<Tensor> bias_;
    std::shared_ptr<Tensor> dy_;
    std::shared_ptr<Tensor> pre_;
};

TEST_P(CudaLinear, ForwardIsThatOfTheCpu) {
    ExpectForward(*x_, *weight_, nullptr);
    ExpectForward(*x_, *weight_, bias_.get());
}

TEST_P(CudaLinear, ForwardTakesUnalignedTensors) {
    ExpectForward(*Unaligned(*x_), *weight_, bias_.get());
    ExpectForward(*x_, *Unaligned(*weight_), nullptr);
    ExpectForward(*x_, *weight_, Unaligned(*bias_).get());
}

TEST_P(CudaLinear, BackwardInputIsThatOfTheCpu) {
    const auto wanted = linear_backward_input(kCpu, *ToCpuFloat32(*dy_), *ToCpuFloat32(*weight_));
    for (const auto& dy : {dy_, Unaligned(*dy_)}) {
        Poison(x_->shape(), dtype_);
        const auto dx = linear_backward_input(kCuda, *dy, *weight_);
        ASSERT_EQ(dx->dtype(), dtype_);
        ExpectClose(*ToCpuFloat32(*dx), *wanted, rounding(), SumRounding(sizes_.outputs, weight_scale_));
    }
}

TEST_P(CudaLinear, BackwardWeightIsThatOfTheCpuWrittenOrAdded) {
    for (const bool accumulate : {false, true}) {
        ExpectWeightGradient(*dy_, *x_, accumulate);
        ExpectWeightGradient(*Unaligned(*dy_), *x_, accumulate);
        ExpectWeightGradient(*dy_, *Unaligned(*x_), accumulate);
    }
}

TEST_P(CudaLinear, BackwardBiasIsThatOfTheCpuWrittenOrAddedWhereverDyBegins) {
    for (const bool accumulate : {false, true}) {
        const auto dbias = Parameter(bias_->shape(), accumulate);
        const auto unaligned_dbias = Parameter(bias_->shape(), accumulate);
        const auto wanted = ToCpuFloat32(*dbias);
        linear_backward_bias(kCpu, *ToCpuFloat32(*dy_), *wanted, accumulate);
        linear_backward_bias(kCuda, *dy_, *dbias, accumulate);
        linear_backward_bias(kCuda, *Unaligned(*dy_), *unaligned_dbias, accumulate);
        ExpectClose(*ToCpuFloat32(*dbias), *wanted, kFloat32Rounding, SumRounding(sizes_.rows));
        EXPECT_TRUE(SameBytes(*dbias, *unaligned_dbias));
    }
}

TEST_P(CudaLinear, GeluForwardIsThatOfTheFormula) {
    for (const Tensor* bias : {static_cast<const Tensor*>(nullptr), static_cast<const Tensor*>(bias_.get())}) {
        const auto cpu_bias = bias == nullptr ? nullptr : ToCpuFloat32(*bias);
        const auto wanted_pre = linear_forward(kCpu, *ToCpuFloat32(*x_), *ToCpuFloat32(*weight_), cpu_bias.get());
        Poison({sizes_.rows, sizes_.outputs}, dtype_);
        const auto [pre, y] = linear_gelu_forward(kCuda, *x_, *weight_, bias);
        ASSERT_EQ(pre->dtype(), dtype_);
        ASSERT_EQ(y->dtype(), dtype_);
        ASSERT_EQ(y->shape(), wanted_pre->shape());
        ExpectClose(*ToCpuFloat32(*pre), *wanted_pre, rounding(), SumRounding(sizes_.inputs, weight_scale_));

        std::vector<double> wanted;
        std::vector<double> allowed;
        for (const double value : ToDoubles(*pre)) {
            wanted.push_back(Gelu(value));
            if (dtype_ == DataType::kBFloat16) {
                // y may come from the sum that was rounded to pre. The library may use the GPU's approximate tanh, off
                // by 2^-11: half of that times pre in y.
                const double shift = kBFloat16Rounding * std::abs(value);
                allowed.push_back(kBFloat16Rounding * std::abs(wanted.back()) + shift * std::abs(GeluSlope(value)) +
                                  shift * shift + 0x1p-12 * std::abs(value));
            } else {
                allowed.push_back(kFloat32Rounding * std::abs(wanted.back()) + 1e-7);
            }
        }
        ExpectWithin(*y, wanted, allowed);
    }
}

TEST_P(CudaLinear, BackwardInputGeluIsThatOfTheFormula) {
    const std::vector<double> sums =
        ToDoubles(*linear_backward_input(kCpu, *ToCpuFloat32(*dy_), *ToCpuFloat32(*weight_)));
    const std::vector<double> pre = ToDoubles(*pre_);
    std::vector<double> wanted;
    std::vector<double> allowed;
    for (size_t i = 0; i < pre.size(); ++i) {
        wanted.push_back(sums[i] * GeluSlope(pre[i]));
        // In bfloat16 the sum may be rounded once and the product again; an approximate tanh, off by 2^-11, moves the
        // derivative by less than twice that.
        const bool is_bfloat16 = dtype_ == DataType::kBFloat16;
        allowed.push_back((is_bfloat16 ? 2.0 : 1.0) * rounding() * std::abs(wanted.back()) +
                          (is_bfloat16 ? 0x1p-10 : 1e-6) * std::abs(sums[i]) +
                          2.0 * SumRounding(sizes_.outputs, weight_scale_));
    }
    for (const auto& pre_tensor : {pre_, Unaligned(*pre_)}) {
        Poison(x_->shape(), dtype_);
        const auto dpre = linear_backward_input_gelu(kCuda, *dy_, *weight_, *pre_tensor);
        ASSERT_EQ(dpre->dtype(), dtype_);
        ASSERT_EQ(dpre->shape(), pre_->shape());
        ExpectWithin(*dpre, wanted, allowed);
    }
}

TEST_P(CudaLinear, HasTheSameBitsAgainAndOnAnotherStreamBesideIt) {
    const auto run = [&](const Device& device) {
        const auto on = [&](const std::shared_ptr<Tensor>& tensor) { return CopyTo(*tensor, device); };
        const auto dweight = RandomTensor(weight_->shape(), DataType::kFloat32, device, 6);
        const auto dbias = RandomTensor(bias_->shape(), DataType::kFloat32, device, 7);
        const auto x = on(x_);
        const auto weight = on(weight_);
        const auto bias = on(bias_);
        const auto dy = on(dy_);
        linear_backward_weight(kCuda, *dy, *x, *dweight, true);
        linear_backward_bias(kCuda, *dy, *dbias, true);
        const auto [pre, y] = linear_gelu_forward(kCuda, *x, *weight, bias.get());
        return TensorList{linear_forward(kCuda, *x, *weight, bias.get()),
                          linear_backward_input(kCuda, *dy, *weight),
                          linear_backward_input_gelu(kCuda, *dy, *weight, *on(pre_)),
                          pre,
                          y,
                          dweight,
                          dbias};
    };
    StreamOf(device_)->Synchronize();  // what the other stream reads is there
    const Device other = MakeCudaDevice(0);
    const TensorList once = run(device_);
    const TensorList beside = run(other);
    const TensorList again = run(device_);
    for (size_t i = 0; i < once.size(); ++i) {
        EXPECT_TRUE(SameBytes(*once[i], *again[i])) << "result " << i;
        EXPECT_TRUE(SameBytes(*once[i], *beside[i])) << "result " << i;
    }
}

// Nothing on each axis with and without what the library's epilogues can do, one, odd, one row that they can do, one
// more than a block of rows and a tile of columns, more rows than one block has and a width of no whole tile, and the
// MLP of GPT-2 124M.
INSTANTIATE_TEST_SUITE_P(Sizes, CudaLinear,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::Values(Sizes{0, 8, 16}, Sizes{3, 0, 5}, Sizes{3, 0, 8},
                                                          Sizes{3, 5, 0}, Sizes{1, 1, 1}, Sizes{7, 7, 7},
                                                          Sizes{1, 64, 32}, Sizes{33, 24, 40}, Sizes{65, 100, 257},
                                                          Sizes{2100, 72, 264}, Sizes{1000, 768, 3072})),
                         [](const auto& info) {
                             const Sizes sizes = std::get<1>(info.param);
                             return std::string(Name(std::get<0>(info.param))) + "_" + std::to_string(sizes.rows) +
                                    "x" + std::to_string(sizes.inputs) + "x" + std::to_string(sizes.outputs);
                         });

TEST(CudaLinearBias, SumsManyRowsOfFewAndOfManyColumns) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        // 528 blocks of rows for one tile of columns, the last of them short; a row of tiles so wide that there is one.
        for (const Shape& shape : {Shape{40001, 8}, Shape{40001, 3}, Shape{70, 140008}}) {
            const auto dy = RandomTensor(shape, dtype, device, 1);
            const auto dbias = Tensor::Empty({shape[1]}, DataType::kFloat32, device);
            fill(kCuda, *dbias, std::numeric_limits<float>::quiet_NaN());
            const auto wanted = Tensor::Empty({shape[1]}, DataType::kFloat32, MakeCpuDevice());
            linear_backward_bias(kCpu, *ToCpuFloat32(*dy), *wanted, false);
            linear_backward_bias(kCuda, *dy, *dbias, false);
            // Sums of a size of a hundred or two, added in partial sums of some hundred terms; a row counts 0.5.
            ExpectClose(*ToCpuFloat32(*dbias), *wanted, kFloat32Rounding, 1e-3);
        }
    }
}

}  // namespace
}  // namespace infini_train::kernels
