#include "infini_train/include/kernels/layer_norm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/kernels/add.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::NumThreadsGuard;
using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr float kEps = 1e-5f;

/// Half a unit in the last place of a bfloat16; in float32 the error of the sums. dx is a difference of terms that are
/// much larger where a row of few columns has a small variance.
double Tolerance(DataType dtype, double wanted) {
    return (dtype == DataType::kBFloat16 ? 0x1.01p-8 : 1e-5) * std::abs(wanted) + 4e-5;
}

void ExpectNear(const Tensor& got, DataType dtype, const std::vector<double>& wanted) {
    ASSERT_EQ(got.dtype(), dtype);
    const std::vector<double> values = ToDoubles(got);
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], wanted[i], Tolerance(dtype, wanted[i])) << "element " << i << " of " << values.size();
    }
}

class LayerNorm : public testing::TestWithParam<std::tuple<DataType, int64_t, int64_t>> {
 protected:
    LayerNorm()
        : dtype_(std::get<0>(GetParam())),
          rows_(static_cast<size_t>(std::get<1>(GetParam()))),
          columns_(static_cast<size_t>(std::get<2>(GetParam()))),
          x_(Random({std::get<1>(GetParam()), std::get<2>(GetParam())}, 1)),
          weight_(Random({std::get<2>(GetParam())}, 2)),
          bias_(Random({std::get<2>(GetParam())}, 3)),
          dy_(Random({std::get<1>(GetParam()), std::get<2>(GetParam())}, 4)),
          branch_(Random({std::get<1>(GetParam()), std::get<2>(GetParam())}, 5)),
          dsum_(Random({std::get<1>(GetParam()), std::get<2>(GetParam())}, 6)) {}

    std::shared_ptr<Tensor> Random(const Shape& shape, uint64_t seed) const {
        return RandomTensor(shape, dtype_, device_, seed, 2.0f);
    }

    Device device_ = MakeCpuDevice();
    DataType dtype_;
    size_t rows_;
    size_t columns_;
    std::shared_ptr<Tensor> x_;
    std::shared_ptr<Tensor> weight_;
    std::shared_ptr<Tensor> bias_;
    std::shared_ptr<Tensor> dy_;
    std::shared_ptr<Tensor> branch_;
    std::shared_ptr<Tensor> dsum_;
};

TEST_P(LayerNorm, ForwardIsTheNaiveOne) {
    const std::vector<double> x = ToDoubles(*x_);
    const std::vector<double> weight = ToDoubles(*weight_);
    const std::vector<double> bias = ToDoubles(*bias_);
    const double count = static_cast<double>(columns_);
    std::vector<double> mean(rows_), rstd(rows_), y(rows_ * columns_);
    for (size_t n = 0; n < rows_; ++n) {
        for (size_t c = 0; c < columns_; ++c) {
            mean[n] += x[n * columns_ + c] / count;
        }
        double variance = 0.0;
        for (size_t c = 0; c < columns_; ++c) {
            variance += std::pow(x[n * columns_ + c] - mean[n], 2) / count;
        }
        rstd[n] = 1.0 / std::sqrt(variance + double{kEps});
        for (size_t c = 0; c < columns_; ++c) {
            y[n * columns_ + c] = (x[n * columns_ + c] - mean[n]) * rstd[n] * weight[c] + bias[c];
        }
    }
    const LayerNormOutput output = layer_norm_forward(kCpu, *x_, nullptr, *weight_, *bias_, kEps);
    EXPECT_EQ(output.sum, nullptr);
    ExpectNear(*output.y, dtype_, y);
    ExpectNear(*output.mean, DataType::kFloat32, mean);
    ExpectNear(*output.rstd, DataType::kFloat32, rstd);
}

TEST_P(LayerNorm, HasTheBitsOfAddAndTheNormOfTheSumWithABranch) {
    const auto sum = add(kCpu, *x_, *branch_);
    const LayerNormOutput wanted = layer_norm_forward(kCpu, *sum, nullptr, *weight_, *bias_, kEps);
    const LayerNormOutput output = layer_norm_forward(kCpu, *x_, branch_.get(), *weight_, *bias_, kEps);
    EXPECT_TRUE(SameBits(*output.sum, *sum));
    EXPECT_TRUE(SameBits(*output.y, *wanted.y));
    EXPECT_TRUE(SameBits(*output.mean, *wanted.mean));
    EXPECT_TRUE(SameBits(*output.rstd, *wanted.rstd));
}

TEST_P(LayerNorm, BackwardIsTheNaiveOne) {
    const LayerNormOutput output = layer_norm_forward(kCpu, *x_, nullptr, *weight_, *bias_, kEps);
    const std::vector<double> x = ToDoubles(*x_);
    const std::vector<double> weight = ToDoubles(*weight_);
    const std::vector<double> dy = ToDoubles(*dy_);
    const std::vector<double> mean = ToDoubles(*output.mean);
    // Of one column all values are the mean and rstd is 1 / sqrt(eps): that of the forward, not of rounding errors.
    const std::vector<double> rstd = ToDoubles(*output.rstd);
    const double count = static_cast<double>(columns_);
    std::vector<double> dx(rows_ * columns_), dweight(columns_), dbias(columns_);
    for (size_t n = 0; n < rows_; ++n) {
        double mean_g = 0.0;
        double mean_gh = 0.0;
        for (size_t c = 0; c < columns_; ++c) {
            const size_t i = n * columns_ + c;
            mean_g += dy[i] * weight[c] / count;
            mean_gh += dy[i] * weight[c] * (x[i] - mean[n]) * rstd[n] / count;
        }
        for (size_t c = 0; c < columns_; ++c) {
            const size_t i = n * columns_ + c;
            const double h = (x[i] - mean[n]) * rstd[n];
            dx[i] = rstd[n] * (dy[i] * weight[c] - mean_g - h * mean_gh);
            dweight[c] += dy[i] * h;
            dbias[c] += dy[i];
        }
    }
    const LayerNormGrad grad = layer_norm_backward(kCpu, *dy_, nullptr, *x_, *weight_, *output.mean, *output.rstd);
    ExpectNear(*grad.dx, dtype_, dx);
    ExpectNear(*grad.dweight, DataType::kFloat32, dweight);
    ExpectNear(*grad.dbias, DataType::kFloat32, dbias);

    // What else depends on the sum is added before the one rounding, and to dx alone.
    const std::vector<double> dsum = ToDoubles(*dsum_);
    for (size_t i = 0; i < dx.size(); ++i) {
        dx[i] += dsum[i];
    }
    const LayerNormGrad both = layer_norm_backward(kCpu, *dy_, dsum_.get(), *x_, *weight_, *output.mean, *output.rstd);
    ExpectNear(*both.dx, dtype_, dx);
    EXPECT_TRUE(SameBits(*both.dweight, *grad.dweight));
    EXPECT_TRUE(SameBits(*both.dbias, *grad.dbias));
}

TEST_P(LayerNorm, HasTheSameBitsOnOneAndThreeThreads) {
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        const LayerNormOutput output = layer_norm_forward(kCpu, *x_, branch_.get(), *weight_, *bias_, kEps);
        const LayerNormGrad grad =
            layer_norm_backward(kCpu, *dy_, dsum_.get(), *output.sum, *weight_, *output.mean, *output.rstd);
        return TensorList{output.sum, output.y, output.mean, output.rstd, grad.dx, grad.dweight, grad.dbias};
    };
    const TensorList one = run(1);
    const TensorList three = run(3);
    for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(SameBits(*one[i], *three[i])) << "result " << i;
    }
}

// No row, one, more than a block of 16, more than 64 blocks; columns: one, less than a vector, one more than the
// interleaved sums, a model's.
INSTANTIATE_TEST_SUITE_P(Sizes, LayerNorm,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::Values(0, 1, 17, 1030), testing::Values(1, 7, 33, 768)));

TEST(LayerNormValues, NormalisesEachRow) {
    const Device device = MakeCpuDevice();
    // Means 2 and 5, variances 1 and 16.
    const auto x = Tensor::FromVector<float>({1.0f, 3.0f, 9.0f, 1.0f}, {2, 1, 2}, device);
    const auto weight = Tensor::FromVector<float>({1.0f, 2.0f}, {2}, device);
    const auto bias = Tensor::FromVector<float>({0.5f, -1.0f}, {2}, device);
    const LayerNormOutput output = layer_norm_forward(kCpu, *x, nullptr, *weight, *bias, 1e-12f);
    EXPECT_EQ(output.y->shape(), x->shape());
    EXPECT_EQ(output.mean->ToVector<float>(), (std::vector<float>{2.0f, 5.0f}));
    EXPECT_EQ(output.rstd->ToVector<float>(), (std::vector<float>{1.0f, 0.25f}));
    EXPECT_EQ(output.y->ToVector<float>(), (std::vector<float>{-0.5f, 1.0f, 1.5f, -3.0f}));
}

TEST(LayerNormValues, NormalisesTheSumWithABranch) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({0.5f, 5.0f, 3.0f, -1.0f}, {2, 2}, device);
    const auto branch = Tensor::FromVector<float>({0.5f, -2.0f, 6.0f, 2.0f}, {2, 2}, device);
    const auto weight = Tensor::FromVector<float>({1.0f, 2.0f}, {2}, device);
    const auto bias = Tensor::FromVector<float>({0.5f, -1.0f}, {2}, device);
    const LayerNormOutput output = layer_norm_forward(kCpu, *x, branch.get(), *weight, *bias, 1e-12f);
    EXPECT_EQ(output.sum->ToVector<float>(), (std::vector<float>{1.0f, 3.0f, 9.0f, 1.0f}));
    EXPECT_EQ(output.y->ToVector<float>(), (std::vector<float>{-0.5f, 1.0f, 1.5f, -3.0f}));
    // Of two columns the norm passes nothing on: dx is dsum.
    const auto dy = Tensor::FromVector<float>({1.0f, 3.0f, -2.0f, 1.0f}, {2, 2}, device);
    const auto dsum = Tensor::FromVector<float>({10.0f, 20.0f, 30.0f, 40.0f}, {2, 2}, device);
    const LayerNormGrad grad =
        layer_norm_backward(kCpu, *dy, dsum.get(), *output.sum, *weight, *output.mean, *output.rstd);
    EXPECT_EQ(grad.dx->ToVector<float>(), (std::vector<float>{10.0f, 20.0f, 30.0f, 40.0f}));
    EXPECT_EQ(grad.dweight->ToVector<float>(), (std::vector<float>{-3.0f, 2.0f}));
    EXPECT_EQ(grad.dbias->ToVector<float>(), (std::vector<float>{-1.0f, 4.0f}));
}

TEST(LayerNormValues, KeepsThePrecisionOfSmallDifferencesFromALargeMean) {
    // mean(x^2) - mean(x)^2 has no correct digit here.
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({10000.0f, 10000.5f, 10000.0f, 10000.5f}, {1, 4}, device);
    const auto one = Tensor::FromVector<float>({1.0f, 1.0f, 1.0f, 1.0f}, {4}, device);
    const auto zero = Tensor::Zeros({4}, DataType::kFloat32, device);
    EXPECT_FLOAT_EQ(layer_norm_forward(kCpu, *x, nullptr, *one, *zero, 1e-12f).rstd->ToVector<float>()[0], 4.0f);
}

TEST(LayerNormValues, KeepsNaN) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({1.0f, std::numeric_limits<float>::quiet_NaN()}, {1, 2}, device);
    const auto weight = Tensor::FromVector<float>({1.0f, 1.0f}, {2}, device);
    EXPECT_TRUE(std::isnan(layer_norm_forward(kCpu, *x, nullptr, *weight, *weight, kEps).y->ToVector<float>()[0]));
}

TEST(LayerNormDeathTest, RefusesOperandsOfAnotherWidthOrDtype) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::Zeros({2, 3}, DataType::kFloat32, device);
    const auto wide = Tensor::Zeros({4}, DataType::kFloat32, device);
    const auto narrow = Tensor::Zeros({3}, DataType::kBFloat16, device);
    const auto weight = Tensor::Zeros({3}, DataType::kFloat32, device);
    const auto rows = Tensor::Zeros({2}, DataType::kFloat32, device);
    EXPECT_DEATH(layer_norm_forward(kCpu, *x, nullptr, *wide, *weight, kEps), "layer_norm_forward.*weight \\[4\\]");
    EXPECT_DEATH(layer_norm_forward(kCpu, *x, nullptr, *weight, *narrow, kEps),
                 "layer_norm_forward.*bias \\[3\\] bfloat16");
    EXPECT_DEATH(layer_norm_forward(kCpu, *x, nullptr, *weight, *weight, 0.0f), "layer_norm_forward");
    EXPECT_DEATH(layer_norm_forward(kCpu, *x, wide.get(), *weight, *weight, kEps),
                 "layer_norm_forward: branch \\[4\\] float32, x \\[2, 3\\]");
    EXPECT_DEATH(layer_norm_backward(kCpu, *x, wide.get(), *x, *weight, *rows, *rows),
                 "layer_norm_backward: dsum \\[4\\]");
    EXPECT_DEATH(layer_norm_backward(kCpu, *wide, nullptr, *x, *weight, *rows, *rows),
                 "layer_norm_backward: dy \\[4\\]");
    EXPECT_DEATH(layer_norm_backward(kCpu, *x, nullptr, *x, *weight, *weight, *rows),
                 "layer_norm_backward: mean \\[3\\]");
}

}  // namespace
}  // namespace infini_train::kernels
