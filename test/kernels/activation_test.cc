#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/kernels/gelu.h"
#include "infini_train/include/kernels/swiglu.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::NumThreadsGuard;
using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr double kPi = 3.14159265358979323846;

double NaiveGelu(double x) {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / kPi) * (x + 0.044715 * x * x * x)));
}

double NaiveGeluSlope(double x) {
    const double tanh = std::tanh(std::sqrt(2.0 / kPi) * (x + 0.044715 * x * x * x));
    const double inner_slope = std::sqrt(2.0 / kPi) * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner_slope;
}

double NaiveSilu(double g) {
    return g / (1.0 + std::exp(-g));
}

double NaiveSiluSlope(double g) {
    const double s = 1.0 / (1.0 + std::exp(-g));
    return s * (1.0 + g * (1.0 - s));
}

/// Half a unit in the last place of a bfloat16, or a few of a float32.
double Tolerance(DataType dtype, double wanted) {
    return dtype == DataType::kBFloat16 ? 0x1.01p-8 * std::abs(wanted) + 1e-7 : 4e-7 * std::abs(wanted) + 4e-7;
}

void ExpectNear(const Tensor& got, DataType dtype, const std::function<double(size_t)>& wanted) {
    ASSERT_EQ(got.dtype(), dtype);
    const std::vector<double> values = ToDoubles(got);
    for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], wanted(i), Tolerance(dtype, wanted(i))) << "element " << i << " of " << values.size();
    }
}

class Activation : public testing::TestWithParam<std::tuple<DataType, int64_t>> {
 protected:
    std::shared_ptr<Tensor> Random(uint64_t seed, float scale) {
        return RandomTensor({std::get<1>(GetParam())}, dtype(), device_, seed, scale);
    }
    DataType dtype() const { return std::get<0>(GetParam()); }

    Device device_ = MakeCpuDevice();
};

TEST_P(Activation, GeluIsTheNaiveOne) {
    const auto x = Random(1, 6.0f);
    const std::vector<double> values = ToDoubles(*x);
    ExpectNear(*gelu_forward(kCpu, *x), dtype(), [&](size_t i) { return NaiveGelu(values[i]); });
}

TEST_P(Activation, GeluBackwardIsTheNaiveOne) {
    const auto x = Random(1, 6.0f);
    const auto dy = Random(2, 1.0f);
    const std::vector<double> values = ToDoubles(*x);
    const std::vector<double> grads = ToDoubles(*dy);
    ExpectNear(*gelu_backward(kCpu, *dy, *x), dtype(), [&](size_t i) { return grads[i] * NaiveGeluSlope(values[i]); });
}

TEST_P(Activation, SwigluIsTheNaiveOne) {
    const auto gate = Random(1, 6.0f);
    const auto up = Random(2, 1.0f);
    const std::vector<double> gates = ToDoubles(*gate);
    const std::vector<double> ups = ToDoubles(*up);
    ExpectNear(*swiglu_forward(kCpu, *gate, *up), dtype(), [&](size_t i) { return NaiveSilu(gates[i]) * ups[i]; });
}

TEST_P(Activation, SwigluBackwardIsTheNaiveOne) {
    const auto gate = Random(1, 6.0f);
    const auto up = Random(2, 1.0f);
    const auto dy = Random(3, 1.0f);
    const std::vector<double> gates = ToDoubles(*gate);
    const std::vector<double> ups = ToDoubles(*up);
    const std::vector<double> grads = ToDoubles(*dy);
    const SwigluGrad grad = swiglu_backward(kCpu, *dy, *gate, *up);
    ExpectNear(*grad.dgate, dtype(), [&](size_t i) { return grads[i] * ups[i] * NaiveSiluSlope(gates[i]); });
    ExpectNear(*grad.dup, dtype(), [&](size_t i) { return grads[i] * NaiveSilu(gates[i]); });
}

TEST_P(Activation, HasTheSameBitsOnOneAndThreeThreads) {
    const auto x = Random(1, 6.0f);
    const auto dy = Random(2, 1.0f);
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        const SwigluGrad grad = swiglu_backward(kCpu, *dy, *x, *dy);
        return TensorList{gelu_forward(kCpu, *x), gelu_backward(kCpu, *dy, *x), swiglu_forward(kCpu, *x, *dy),
                          grad.dgate, grad.dup};
    };
    const TensorList one = run(1);
    const TensorList three = run(3);
    for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(SameBits(*one[i], *three[i])) << "result " << i;
    }
}

// Nothing, one, less than a vector, a block and one more, and enough for several threads.
INSTANTIATE_TEST_SUITE_P(Sizes, Activation,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::Values(0, 1, 7, 4097, 50001)));

TEST(Gelu, HasTheValuesOfTheFormula) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({0.0f, 1.0f, -1.0f, 3.0f}, {2, 2}, device);
    const auto y = gelu_forward(kCpu, *x);
    EXPECT_EQ(y->shape(), (Shape{2, 2}));
    const std::vector<float> values = y->ToVector<float>();
    EXPECT_EQ(values[0], 0.0f);
    EXPECT_FLOAT_EQ(values[1], 0.84119199f);
    EXPECT_FLOAT_EQ(values[2], -0.15880801f);
    EXPECT_FLOAT_EQ(values[3], 2.99636261f);
    const auto dy = Tensor::FromVector<float>({2.0f, 0.0f, 0.0f, 0.0f}, {2, 2}, device);
    EXPECT_EQ(gelu_backward(kCpu, *dy, *x)->ToVector<float>(), (std::vector<float>{1.0f, 0.0f, 0.0f, 0.0f}));
}

TEST(Gelu, IsTheIdentityOrZeroFarFromZero) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({1e4f, -1e4f, 30.0f, -30.0f}, {4}, device);
    const auto ones = Tensor::FromVector<float>({1.0f, 1.0f, 1.0f, 1.0f}, {4}, device);
    EXPECT_EQ(gelu_forward(kCpu, *x)->ToVector<float>(), (std::vector<float>{1e4f, 0.0f, 30.0f, 0.0f}));
    EXPECT_EQ(gelu_backward(kCpu, *ones, *x)->ToVector<float>(), (std::vector<float>{1.0f, 0.0f, 1.0f, 0.0f}));
}

TEST(Gelu, KeepsRelativePrecisionWhereItIsSmall) {
    // 1 + tanh would cancel: at -5 it has one decimal digit left in float32.
    const auto x = Tensor::FromVector<float>({-3.0f, -4.0f, -5.0f}, {3}, MakeCpuDevice());
    const std::vector<float> y = gelu_forward(kCpu, *x)->ToVector<float>();
    EXPECT_NEAR(y[0] / NaiveGelu(-3.0), 1.0, 2e-6);
    EXPECT_NEAR(y[1] / NaiveGelu(-4.0), 1.0, 2e-6);
    EXPECT_NEAR(y[2] / NaiveGelu(-5.0), 1.0, 4e-6);
}

TEST(Swiglu, HasTheValuesOfTheFormula) {
    const Device device = MakeCpuDevice();
    const auto gate = Tensor::FromVector<float>({0.0f, 1.0f, -100.0f, 100.0f}, {4}, device);
    const auto up = Tensor::FromVector<float>({3.0f, 2.0f, 1.0f, 1.0f}, {4}, device);
    const std::vector<float> y = swiglu_forward(kCpu, *gate, *up)->ToVector<float>();
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_FLOAT_EQ(y[1], 1.4621172f);
    EXPECT_NEAR(y[2], 0.0f, 1e-40f);
    EXPECT_EQ(y[3], 100.0f);
    const auto dy = Tensor::FromVector<float>({1.0f, 1.0f, 1.0f, 1.0f}, {4}, device);
    const SwigluGrad grad = swiglu_backward(kCpu, *dy, *gate, *up);
    const std::vector<float> dgate = grad.dgate->ToVector<float>();
    const std::vector<float> dup = grad.dup->ToVector<float>();
    EXPECT_FLOAT_EQ(dgate[0], 1.5f);
    EXPECT_FLOAT_EQ(dgate[1], 1.8553411f);
    EXPECT_FLOAT_EQ(dup[1], 0.7310586f);
    EXPECT_EQ(dgate[3], 1.0f);
}

TEST(Activations, KeepNaN) {
    const auto nan = Tensor::FromVector<float>({std::numeric_limits<float>::quiet_NaN()}, {1}, MakeCpuDevice());
    EXPECT_TRUE(std::isnan(gelu_forward(kCpu, *nan)->ToVector<float>()[0]));
    EXPECT_TRUE(std::isnan(gelu_backward(kCpu, *nan, *nan)->ToVector<float>()[0]));
    EXPECT_TRUE(std::isnan(swiglu_forward(kCpu, *nan, *nan)->ToVector<float>()[0]));
}

TEST(ActivationDeathTest, RefusesOperandsOfAnotherShapeOrDtype) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::Zeros({2, 3}, DataType::kFloat32, device);
    const auto wide = Tensor::Zeros({2, 4}, DataType::kFloat32, device);
    const auto narrow = Tensor::Zeros({2, 3}, DataType::kBFloat16, device);
    EXPECT_DEATH(gelu_backward(kCpu, *wide, *x), "gelu_backward.*\\[2, 4\\].*\\[2, 3\\]");
    EXPECT_DEATH(swiglu_forward(kCpu, *x, *narrow), "swiglu_forward.*bfloat16.*float32");
    EXPECT_DEATH(swiglu_backward(kCpu, *wide, *x, *x), "swiglu_backward.*\\[2, 4\\]");
    EXPECT_DEATH(gelu_forward(kCpu, *Tensor::Zeros({1}, DataType::kInt32, device)), "int32");
}

}  // namespace
}  // namespace infini_train::kernels
