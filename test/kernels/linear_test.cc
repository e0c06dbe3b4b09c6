#include "infini_train/include/kernels/linear.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/kernels/gelu.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::NumThreadsGuard;
using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;

struct Sizes {
    int64_t rows = 0;
    int64_t inputs = 0;
    int64_t outputs = 0;
};

class Linear : public testing::TestWithParam<std::tuple<DataType, Sizes>> {
 protected:
    Linear()
        : dtype_(std::get<0>(GetParam())),
          sizes_(std::get<1>(GetParam())),
          x_(Random({sizes_.rows, sizes_.inputs}, 1)),
          weight_(Random({sizes_.outputs, sizes_.inputs}, 2)),
          bias_(Random({sizes_.outputs}, 3)),
          dy_(Random({sizes_.rows, sizes_.outputs}, 4)) {}

    std::shared_ptr<Tensor> Random(const Shape& shape, uint64_t seed) const {
        return RandomTensor(shape, dtype_, device_, seed);
    }

    /// `terms` products of numbers of at most 1 in float32, rounded to the dtype of the result.
    void ExpectNear(const Tensor& got, DataType dtype, int64_t terms, const std::vector<double>& wanted) const {
        ASSERT_EQ(got.dtype(), dtype);
        const std::vector<double> values = ToDoubles(got);
        ASSERT_EQ(values.size(), wanted.size());
        for (size_t i = 0; i < values.size(); ++i) {
            const double rounding = dtype == DataType::kBFloat16 ? 0x1.01p-8 * std::abs(wanted[i]) : 0.0;
            ASSERT_NEAR(values[i], wanted[i], rounding + 1e-7 * static_cast<double>(terms + 4)) << "element " << i;
        }
    }

    Device device_ = MakeCpuDevice();
    DataType dtype_;
    Sizes sizes_;
    std::shared_ptr<Tensor> x_;
    std::shared_ptr<Tensor> weight_;
    std::shared_ptr<Tensor> bias_;
    std::shared_ptr<Tensor> dy_;
};

TEST_P(Linear, ForwardIsTheNaiveOne) {
    const std::vector<double> x = ToDoubles(*x_);
    const std::vector<double> weight = ToDoubles(*weight_);
    const std::vector<double> bias = ToDoubles(*bias_);
    std::vector<double> without_bias;
    std::vector<double> with_bias;
    for (int64_t n = 0; n < sizes_.rows; ++n) {
        for (int64_t o = 0; o < sizes_.outputs; ++o) {
            double sum = 0.0;
            for (int64_t i = 0; i < sizes_.inputs; ++i) {
                sum +=
                    x[static_cast<size_t>(n * sizes_.inputs + i)] * weight[static_cast<size_t>(o * sizes_.inputs + i)];
            }
            without_bias.push_back(sum);
            with_bias.push_back(sum + bias[static_cast<size_t>(o)]);
        }
    }
    ExpectNear(*linear_forward(kCpu, *x_, *weight_, nullptr), dtype_, sizes_.inputs, without_bias);
    ExpectNear(*linear_forward(kCpu, *x_, *weight_, bias_.get()), dtype_, sizes_.inputs, with_bias);
}

TEST_P(Linear, BackwardInputIsTheNaiveOne) {
    const std::vector<double> weight = ToDoubles(*weight_);
    const std::vector<double> dy = ToDoubles(*dy_);
    std::vector<double> dx;
    for (int64_t n = 0; n < sizes_.rows; ++n) {
        for (int64_t i = 0; i < sizes_.inputs; ++i) {
            double sum = 0.0;
            for (int64_t o = 0; o < sizes_.outputs; ++o) {
                sum += dy[static_cast<size_t>(n * sizes_.outputs + o)] *
                       weight[static_cast<size_t>(o * sizes_.inputs + i)];
            }
            dx.push_back(sum);
        }
    }
    ExpectNear(*linear_backward_input(kCpu, *dy_, *weight_), dtype_, sizes_.outputs, dx);
}

// gelu and its derivative themselves are tested in activation_test.
TEST_P(Linear, WithGeluIsTheNaiveOneBothWays) {
    const auto pre = linear_forward(kCpu, *x_, *weight_, bias_.get());
    const LinearGeluOutput output = linear_gelu_forward(kCpu, *x_, *weight_, bias_.get());
    EXPECT_TRUE(SameBits(*output.pre, *pre));
    EXPECT_TRUE(SameBits(*output.y, *gelu_forward(kCpu, *pre)));
    const LinearGeluOutput without_bias = linear_gelu_forward(kCpu, *x_, *weight_, nullptr);
    EXPECT_TRUE(SameBits(*without_bias.pre, *linear_forward(kCpu, *x_, *weight_, nullptr)));
    EXPECT_TRUE(SameBits(*without_bias.y, *gelu_forward(kCpu, *without_bias.pre)));
    const auto before = RandomTensor(x_->shape(), dtype_, device_, 7, 3.0f);
    EXPECT_TRUE(SameBits(*linear_backward_input_gelu(kCpu, *dy_, *weight_, *before),
                         *gelu_backward(kCpu, *linear_backward_input(kCpu, *dy_, *weight_), *before)));
}

TEST_P(Linear, BackwardOfTheParametersIsTheNaiveOneWrittenOrAdded) {
    const std::vector<double> x = ToDoubles(*x_);
    const std::vector<double> dy = ToDoubles(*dy_);
    for (const bool accumulate : {false, true}) {
        const auto dweight = RandomTensor(weight_->shape(), DataType::kFloat32, device_, 5);
        const auto dbias = RandomTensor(bias_->shape(), DataType::kFloat32, device_, 6);
        std::vector<double> wanted_dweight = ToDoubles(*dweight);
        std::vector<double> wanted_dbias = ToDoubles(*dbias);
        for (int64_t o = 0; o < sizes_.outputs; ++o) {
            double& bias_sum = wanted_dbias[static_cast<size_t>(o)];
            bias_sum = accumulate ? bias_sum : 0.0;
            for (int64_t n = 0; n < sizes_.rows; ++n) {
                bias_sum += dy[static_cast<size_t>(n * sizes_.outputs + o)];
            }
            for (int64_t i = 0; i < sizes_.inputs; ++i) {
                double& sum = wanted_dweight[static_cast<size_t>(o * sizes_.inputs + i)];
                sum = accumulate ? sum : 0.0;
                for (int64_t n = 0; n < sizes_.rows; ++n) {
                    sum +=
                        dy[static_cast<size_t>(n * sizes_.outputs + o)] * x[static_cast<size_t>(n * sizes_.inputs + i)];
                }
            }
        }
        linear_backward_weight(kCpu, *dy_, *x_, *dweight, accumulate);
        linear_backward_bias(kCpu, *dy_, *dbias, accumulate);
        ExpectNear(*dweight, DataType::kFloat32, sizes_.rows, wanted_dweight);
        ExpectNear(*dbias, DataType::kFloat32, sizes_.rows, wanted_dbias);
    }
}

TEST_P(Linear, HasTheSameBitsOnOneAndThreeThreads) {
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        const auto dweight = RandomTensor(weight_->shape(), DataType::kFloat32, device_, 5);
        const auto dbias = RandomTensor(bias_->shape(), DataType::kFloat32, device_, 6);
        linear_backward_weight(kCpu, *dy_, *x_, *dweight, true);
        linear_backward_bias(kCpu, *dy_, *dbias, true);
        return TensorList{linear_forward(kCpu, *x_, *weight_, bias_.get()), linear_backward_input(kCpu, *dy_, *weight_),
                          dweight, dbias};
    };
    const TensorList one = run(1);
    const TensorList three = run(3);
    for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(SameBits(*one[i], *three[i])) << "result " << i;
    }
}

// Nothing on each axis, one, odd, more than the 16 rows of a block, more than 64 blocks, over a task's 256 columns.
INSTANTIATE_TEST_SUITE_P(Sizes, Linear,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::Values(Sizes{0, 3, 2}, Sizes{3, 0, 2}, Sizes{3, 2, 0},
                                                          Sizes{1, 1, 1}, Sizes{7, 5, 3}, Sizes{17, 33, 65},
                                                          Sizes{1030, 9, 31}, Sizes{65, 17, 300})));

TEST(LinearValues, HasTheValuesOfTheFormula) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({1.0f, 2.0f, 3.0f, 4.0f}, {2, 1, 2}, device);
    const auto weight = Tensor::FromVector<float>({1.0f, 0.0f, 0.0f, 10.0f, -1.0f, 1.0f}, {3, 2}, device);
    const auto bias = Tensor::FromVector<float>({0.5f, 0.0f, 0.0f}, {3}, device);
    const auto y = linear_forward(kCpu, *x, *weight, bias.get());
    EXPECT_EQ(y->shape(), (Shape{2, 1, 3}));
    EXPECT_EQ(y->ToVector<float>(), (std::vector<float>{1.5f, 20.0f, 1.0f, 3.5f, 40.0f, 1.0f}));
    const auto dx = linear_backward_input(kCpu, *y, *weight);
    EXPECT_EQ(dx->shape(), x->shape());
    EXPECT_EQ(dx->ToVector<float>(), (std::vector<float>{0.5f, 201.0f, 2.5f, 401.0f}));
    const auto dweight = Tensor::FromVector<float>({1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f}, {3, 2}, device);
    linear_backward_weight(kCpu, *y, *x, *dweight, true);
    EXPECT_EQ(dweight->ToVector<float>(), (std::vector<float>{13.0f, 18.0f, 141.0f, 201.0f, 5.0f, 7.0f}));
}

TEST(LinearValues, OfGeluAreThoseOfTheFormula) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({1.0f, 2.0f}, {1, 2}, device);
    const auto weight = Tensor::FromVector<float>({1.0f, 0.0f, 5.0f, -4.0f}, {2, 2}, device);
    const auto bias = Tensor::FromVector<float>({0.0f, 3.0f}, {2}, device);
    const LinearGeluOutput output = linear_gelu_forward(kCpu, *x, *weight, bias.get());
    EXPECT_EQ(output.pre->ToVector<float>(), (std::vector<float>{1.0f, 0.0f}));
    EXPECT_NEAR(output.y->ToVector<float>()[0], 0.841192f, 1e-6f);  // 0.5 (1 + tanh(sqrt(2 / pi) 1.044715))
    EXPECT_EQ(output.y->ToVector<float>()[1], 0.0f);
    // The derivative at 0 is 0.5, far out it is 1 and 0.
    const auto pre = Tensor::FromVector<float>({0.0f, 100.0f}, {1, 2}, device);
    const auto below = Tensor::FromVector<float>({-100.0f, 0.0f}, {1, 2}, device);
    EXPECT_EQ(linear_backward_input_gelu(kCpu, *x, *weight, *pre)->ToVector<float>(),
              (std::vector<float>{5.5f, -8.0f}));
    EXPECT_EQ(linear_backward_input_gelu(kCpu, *x, *weight, *below)->ToVector<float>(),
              (std::vector<float>{0.0f, -4.0f}));
}

TEST(LinearValues, WritesOverWhatTheGradientsHeldEvenNaN) {
    const Device device = MakeCpuDevice();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto x = Tensor::FromVector<float>({2.0f}, {1, 1}, device);
    const auto dweight = Tensor::FromVector<float>({nan}, {1, 1}, device);
    const auto dbias = Tensor::FromVector<float>({nan}, {1}, device);
    linear_backward_weight(kCpu, *x, *x, *dweight, false);
    linear_backward_bias(kCpu, *x, *dbias, false);
    EXPECT_EQ(dweight->ToVector<float>()[0], 4.0f);
    EXPECT_EQ(dbias->ToVector<float>()[0], 2.0f);
}

TEST(LinearDeathTest, RefusesOperandsThatDoNotFit) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::Zeros({2, 3}, DataType::kFloat32, device);
    const auto narrow = Tensor::Zeros({2, 3}, DataType::kBFloat16, device);
    const auto square = Tensor::Zeros({2, 2}, DataType::kFloat32, device);
    const auto vector = Tensor::Zeros({3}, DataType::kFloat32, device);
    EXPECT_DEATH(linear_forward(kCpu, *x, *square, nullptr), "linear_forward.*\\[2, 3\\].*\\[2, 2\\]");
    EXPECT_DEATH(linear_forward(kCpu, *x, *narrow, nullptr), "linear_forward.*float32.*bfloat16");
    EXPECT_DEATH(linear_forward(kCpu, *x, *x, vector.get()), "linear_forward.*bias \\[3\\]");
    EXPECT_DEATH(linear_gelu_forward(kCpu, *x, *square, nullptr), "linear_gelu_forward: x \\[2, 3\\].*\\[2, 2\\]");
    EXPECT_DEATH(linear_backward_input_gelu(kCpu, *x, *square, *square), "linear_backward_input_gelu: dy \\[2, 3\\]");
    EXPECT_DEATH(linear_backward_input_gelu(kCpu, *square, *x, *square), "linear_backward_input_gelu.*pre \\[2, 2\\]");
    EXPECT_DEATH(linear_backward_input(kCpu, *x, *square), "linear_backward_input.*\\[2, 3\\].*\\[2, 2\\]");
    EXPECT_DEATH(linear_backward_weight(kCpu, *x, *x, *square, false), "linear_backward_weight.*dweight \\[2, 2\\]");
    EXPECT_DEATH(linear_backward_weight(kCpu, *square, *x, *narrow, false), "linear_backward_weight.*bfloat16");
    EXPECT_DEATH(linear_backward_bias(kCpu, *square, *vector, false), "linear_backward_bias.*dbias \\[3\\]");
}

}  // namespace
}  // namespace infini_train::kernels
