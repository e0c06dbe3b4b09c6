#include "infini_train/include/kernels/rms_norm.h"

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

/// Half a unit in the last place of a bfloat16; in float32 the error of the sums: of dweight, 1030 terms of up to 3.5
/// that may cancel, which a build without fused multiply-add has an error of 1.4e-5 in.
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

class RmsNorm : public testing::TestWithParam<std::tuple<DataType, int64_t, int64_t>> {
 protected:
    RmsNorm()
        : dtype_(std::get<0>(GetParam())),
          rows_(static_cast<size_t>(std::get<1>(GetParam()))),
          columns_(static_cast<size_t>(std::get<2>(GetParam()))),
          x_(Random({std::get<1>(GetParam()), std::get<2>(GetParam())}, 1)),
          weight_(Random({std::get<2>(GetParam())}, 2)),
          dy_(Random({std::get<1>(GetParam()), std::get<2>(GetParam())}, 3)),
          branch_(Random({std::get<1>(GetParam()), std::get<2>(GetParam())}, 4)),
          dsum_(Random({std::get<1>(GetParam()), std::get<2>(GetParam())}, 5)) {}

    std::shared_ptr<Tensor> Random(const Shape& shape, uint64_t seed) const {
        return RandomTensor(shape, dtype_, device_, seed, 2.0f);
    }

    Device device_ = MakeCpuDevice();
    DataType dtype_;
    size_t rows_;
    size_t columns_;
    std::shared_ptr<Tensor> x_;
    std::shared_ptr<Tensor> weight_;
    std::shared_ptr<Tensor> dy_;
    std::shared_ptr<Tensor> branch_;
    std::shared_ptr<Tensor> dsum_;
};

TEST_P(RmsNorm, IsTheNaiveOne) {
    const std::vector<double> x = ToDoubles(*x_);
    const std::vector<double> weight = ToDoubles(*weight_);
    const std::vector<double> dy = ToDoubles(*dy_);
    const double count = static_cast<double>(columns_);
    std::vector<double> rstd(rows_), y(rows_ * columns_), dx(rows_ * columns_), dweight(columns_);
    for (size_t n = 0; n < rows_; ++n) {
        double squares = 0.0;
        double products = 0.0;
        for (size_t i = n * columns_; i < (n + 1) * columns_; ++i) {
            squares += x[i] * x[i];
            products += dy[i] * weight[i - n * columns_] * x[i];
        }
        rstd[n] = 1.0 / std::sqrt(squares / count + double{kEps});
        for (size_t c = 0; c < columns_; ++c) {
            const size_t i = n * columns_ + c;
            y[i] = x[i] * rstd[n] * weight[c];
            dx[i] = rstd[n] * (dy[i] * weight[c] - x[i] * rstd[n] * products * rstd[n] / count);
            dweight[c] += dy[i] * x[i] * rstd[n];
        }
    }
    const RmsNormOutput output = rms_norm_forward(kCpu, *x_, nullptr, *weight_, kEps);
    EXPECT_EQ(output.sum, nullptr);
    ExpectNear(*output.y, dtype_, y);
    ExpectNear(*output.rstd, DataType::kFloat32, rstd);
    const RmsNormGrad grad = rms_norm_backward(kCpu, *dy_, nullptr, *x_, *weight_, *output.rstd);
    ExpectNear(*grad.dx, dtype_, dx);
    ExpectNear(*grad.dweight, DataType::kFloat32, dweight);

    // What else depends on the sum is added before the one rounding, and to dx alone.
    const std::vector<double> dsum = ToDoubles(*dsum_);
    for (size_t i = 0; i < dx.size(); ++i) {
        dx[i] += dsum[i];
    }
    const RmsNormGrad both = rms_norm_backward(kCpu, *dy_, dsum_.get(), *x_, *weight_, *output.rstd);
    ExpectNear(*both.dx, dtype_, dx);
    EXPECT_TRUE(SameBits(*both.dweight, *grad.dweight));
}

TEST_P(RmsNorm, HasTheBitsOfAddAndTheNormOfTheSumWithABranch) {
    const auto sum = add(kCpu, *x_, *branch_);
    const RmsNormOutput wanted = rms_norm_forward(kCpu, *sum, nullptr, *weight_, kEps);
    const RmsNormOutput output = rms_norm_forward(kCpu, *x_, branch_.get(), *weight_, kEps);
    EXPECT_TRUE(SameBits(*output.sum, *sum));
    EXPECT_TRUE(SameBits(*output.y, *wanted.y));
    EXPECT_TRUE(SameBits(*output.rstd, *wanted.rstd));
}

TEST_P(RmsNorm, HasTheSameBitsOnOneAndThreeThreads) {
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        const RmsNormOutput output = rms_norm_forward(kCpu, *x_, branch_.get(), *weight_, kEps);
        const RmsNormGrad grad = rms_norm_backward(kCpu, *dy_, dsum_.get(), *output.sum, *weight_, *output.rstd);
        return TensorList{output.sum, output.y, output.rstd, grad.dx, grad.dweight};
    };
    const TensorList one = run(1);
    const TensorList three = run(3);
    for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(SameBits(*one[i], *three[i])) << "result " << i;
    }
}

// No row, one, more than a block of 16, more than 64 blocks; columns: one, less than a vector, one more than the
// interleaved sums, a model's.
INSTANTIATE_TEST_SUITE_P(Sizes, RmsNorm,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::Values(0, 1, 17, 1030), testing::Values(1, 7, 33, 768)));

TEST(RmsNormValues, NormalisesEachRow) {
    const Device device = MakeCpuDevice();
    // Rows with mean squares of 25 / 2 and 2.
    const auto x = Tensor::FromVector<float>({3.0f, 4.0f, -2.0f, 0.0f}, {2, 1, 2}, device);
    const auto weight = Tensor::FromVector<float>({1.0f, 2.0f}, {2}, device);
    const RmsNormOutput output = rms_norm_forward(kCpu, *x, nullptr, *weight, 1e-12f);
    EXPECT_EQ(output.y->shape(), x->shape());
    EXPECT_EQ(output.rstd->shape(), (Shape{2}));
    const std::vector<float> rstd = output.rstd->ToVector<float>();
    EXPECT_FLOAT_EQ(rstd[0], std::sqrt(0.08f));
    EXPECT_FLOAT_EQ(rstd[1], std::sqrt(0.5f));
    const std::vector<float> y = output.y->ToVector<float>();
    EXPECT_FLOAT_EQ(y[0], 3.0f * rstd[0]);
    EXPECT_FLOAT_EQ(y[1], 8.0f * rstd[0]);
    EXPECT_FLOAT_EQ(y[2], -2.0f * rstd[1]);
    EXPECT_FLOAT_EQ(y[3], 0.0f);
}

TEST(RmsNormValues, NormalisesTheSumWithABranch) {
    const Device device = MakeCpuDevice();
    // Sums 1, 7, 5, 5 with a mean square of 25.
    const auto x = Tensor::FromVector<float>({0.5f, 5.0f, 3.0f, -1.0f}, {1, 4}, device);
    const auto branch = Tensor::FromVector<float>({0.5f, 2.0f, 2.0f, 6.0f}, {1, 4}, device);
    const auto weight = Tensor::FromVector<float>({5.0f, 10.0f, 5.0f, 5.0f}, {4}, device);
    const RmsNormOutput output = rms_norm_forward(kCpu, *x, branch.get(), *weight, 1e-12f);
    EXPECT_EQ(output.sum->ToVector<float>(), (std::vector<float>{1.0f, 7.0f, 5.0f, 5.0f}));
    const std::vector<float> wanted_y = {1.0f, 14.0f, 5.0f, 5.0f};
    // dy is 0 but for one 25 with a gain of 5: g = 125, h = sum / 5, so mean(g h) = 125 (1/5) / 4 = 6.25, and through
    // the norm comes (g - 6.25 h) / 5.
    const auto dy = Tensor::FromVector<float>({25.0f, 0.0f, 0.0f, 0.0f}, {1, 4}, device);
    const auto dsum = Tensor::FromVector<float>({10.0f, 20.0f, 30.0f, 40.0f}, {1, 4}, device);
    const RmsNormGrad grad = rms_norm_backward(kCpu, *dy, dsum.get(), *output.sum, *weight, *output.rstd);
    const std::vector<float> wanted_dx = {34.75f, 18.25f, 28.75f, 38.75f};
    for (size_t c = 0; c < 4; ++c) {
        EXPECT_FLOAT_EQ(output.y->ToVector<float>()[c], wanted_y[c]) << c;
        EXPECT_FLOAT_EQ(grad.dx->ToVector<float>()[c], wanted_dx[c]) << c;
    }
    EXPECT_FLOAT_EQ(grad.dweight->ToVector<float>()[0], 5.0f);
}

TEST(RmsNormValues, GivesARowTheSameBitsWhereverItLies) {
    // 71 columns: a row has another alignment in the whole than in a tensor of its own.
    const Device device = MakeCpuDevice();
    const auto x = RandomTensor({9, 71}, DataType::kFloat32, device, 1);
    const auto weight = RandomTensor({71}, DataType::kFloat32, device, 2);
    const RmsNormOutput whole = rms_norm_forward(kCpu, *x, nullptr, *weight, kEps);
    for (int64_t n = 0; n < 9; ++n) {
        const auto row = Tensor::Empty({1, 71}, DataType::kFloat32, device);
        row->CopyFrom(*x->Slice(n, n + 1));
        const RmsNormOutput alone = rms_norm_forward(kCpu, *row, nullptr, *weight, kEps);
        EXPECT_TRUE(SameBits(*alone.y, *whole.y->Slice(n, n + 1))) << "row " << n;
        EXPECT_TRUE(SameBits(*alone.rstd, *whole.rstd->Slice(n, n + 1))) << "row " << n;
    }
}

TEST(RmsNormValues, KeepsNaN) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<float>({1.0f, std::numeric_limits<float>::quiet_NaN()}, {1, 2}, device);
    const auto weight = Tensor::FromVector<float>({1.0f, 1.0f}, {2}, device);
    EXPECT_TRUE(std::isnan(rms_norm_forward(kCpu, *x, nullptr, *weight, kEps).y->ToVector<float>()[0]));
}

TEST(RmsNormDeathTest, RefusesAWeightOfAnotherWidthOrDtype) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::Zeros({2, 3}, DataType::kFloat32, device);
    const auto wide = Tensor::Zeros({4}, DataType::kFloat32, device);
    const auto narrow = Tensor::Zeros({3}, DataType::kBFloat16, device);
    const auto weight = Tensor::Zeros({3}, DataType::kFloat32, device);
    const auto rstd = Tensor::Zeros({2}, DataType::kFloat32, device);
    EXPECT_DEATH(rms_norm_forward(kCpu, *x, nullptr, *wide, kEps), "rms_norm_forward.*\\[2, 3\\].*\\[4\\]");
    EXPECT_DEATH(rms_norm_forward(kCpu, *x, nullptr, *narrow, kEps), "rms_norm_forward.*float32.*bfloat16");
    EXPECT_DEATH(rms_norm_forward(kCpu, *x, nullptr, *weight, 0.0f), "rms_norm_forward");
    EXPECT_DEATH(rms_norm_forward(kCpu, *x, wide.get(), *weight, kEps),
                 "rms_norm_forward: branch \\[4\\] float32, x \\[2, 3\\]");
    EXPECT_DEATH(rms_norm_backward(kCpu, *x, rstd.get(), *x, *weight, *rstd), "rms_norm_backward: dsum \\[2\\]");
    EXPECT_DEATH(rms_norm_backward(kCpu, *x, nullptr, *x, *wide, *rstd), "rms_norm_backward.*\\[2, 3\\].*\\[4\\]");
    EXPECT_DEATH(rms_norm_backward(kCpu, *rstd, nullptr, *x, *weight, *rstd), "rms_norm_backward.*\\[2\\].*\\[2, 3\\]");
    EXPECT_DEATH(rms_norm_backward(kCpu, *x, nullptr, *x, *weight, *weight), "rms_norm_backward.*\\[2, 3\\]");
}

}  // namespace
}  // namespace infini_train::kernels
