#include "infini_train/include/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "test/kernels/cross_entropy_case.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::NumThreadsGuard;
using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::shared_ptr<Tensor> Scalar(float value, const Device& device) {
    return Tensor::FromVector(std::vector<float>{value}, {1}, device);
}

class CrossEntropy : public testing::TestWithParam<std::tuple<DataType, LossCase>> {
 protected:
    CrossEntropy() {
        SetPadding(*logits_, size(), kNaN);
        targets_ = MakeTargets(size(), options_.ignore_index, device_);
    }
    DataType dtype() const { return std::get<0>(GetParam()); }
    const LossCase& size() const { return std::get<1>(GetParam()); }

    CrossEntropyOutput Forward() const { return cross_entropy_forward(kCpu, *logits_, *targets_, options_); }
    void Backward(float dloss, const Tensor& lse, Tensor& dlogits) const {
        cross_entropy_backward(kCpu, *Scalar(dloss, device_), *logits_, *targets_, lse, options_, dlogits);
    }

    Device device_ = MakeCpuDevice();
    CrossEntropyOptions options_{.vocab_size = size().vocab_size};
    std::shared_ptr<Tensor> logits_ = RandomTensor({size().num_rows, size().padded_size}, dtype(), device_, 1, 4.0f);
    std::shared_ptr<Tensor> targets_;
};

TEST_P(CrossEntropy, IsTheNaiveOneBothWays) {
    constexpr float kGrad = 0.5f;
    const CrossEntropyOutput output = Forward();
    const auto dlogits = Tensor::Empty(logits_->shape(), dtype(), device_);
    Backward(kGrad, *output.lse, *dlogits);

    const std::vector<double> x = ToDoubles(*logits_);
    const std::vector<double> dx = ToDoubles(*dlogits);
    const std::vector<double> lse = ToDoubles(*output.lse);
    const std::vector<int32_t> targets = targets_->ToVector<int32_t>();
    double loss_sum = 0.0;
    int64_t num_valid = 0;
    for (size_t n = 0; n < targets.size(); ++n) {
        const size_t row = n * static_cast<size_t>(size().padded_size);
        const bool ignored = targets[n] == options_.ignore_index;
        double sum = 0.0;
        for (size_t v = 0; v < static_cast<size_t>(size().vocab_size); ++v) {
            sum += std::exp(x[row + v]);
        }
        if (!ignored) {
            ++num_valid;
            loss_sum += std::log(sum) - x[row + static_cast<size_t>(targets[n])];
            ASSERT_NEAR(lse[n], std::log(sum), 2e-7 * (1.0 + std::abs(std::log(sum)))) << "row " << n;
        }
        for (size_t v = 0; v < static_cast<size_t>(size().padded_size); ++v) {
            const bool taking_part = !ignored && v < static_cast<size_t>(size().vocab_size);
            const double one_hot = static_cast<int64_t>(v) == targets[n] ? 1.0 : 0.0;
            const double wanted = taking_part ? kGrad * (std::exp(x[row + v]) / sum - one_hot) : 0.0;
            // bfloat16 rounds by half a unit in its last place. In float32 the error is that of lse and of x - lse.
            const double tolerance =
                dtype() == DataType::kBFloat16 ? 0x1.01p-9 * std::abs(wanted) * 2 : 3e-6 * std::abs(wanted);
            ASSERT_NEAR(dx[row + v], wanted, tolerance + 1e-7 * one_hot) << "row " << n << " column " << v;
        }
    }
    EXPECT_EQ(output.num_valid->ToVector<int64_t>()[0], num_valid);
    EXPECT_NEAR(ToDoubles(*output.loss_sum)[0], loss_sum, 2e-7 * std::abs(loss_sum) + 1e-7);
}

TEST_P(CrossEntropy, WritesTheSameGradientOverTheLogits) {
    const CrossEntropyOutput output = Forward();
    const auto apart = Tensor::Empty(logits_->shape(), dtype(), device_);
    Backward(0.25f, *output.lse, *apart);
    Backward(0.25f, *output.lse, *logits_);
    EXPECT_TRUE(SameBits(*logits_, *apart));
}

TEST_P(CrossEntropy, HasTheSameBitsOnOneAndThreeThreads) {
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        const CrossEntropyOutput output = Forward();
        const auto dlogits = Tensor::Empty(logits_->shape(), dtype(), device_);
        Backward(1.0f, *output.lse, *dlogits);
        return TensorList{output.loss_sum, output.lse, dlogits};
    };
    const TensorList one = run(1);
    const TensorList three = run(3);
    for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(SameBits(*one[i], *three[i])) << "result " << i;
    }
}

constexpr LossCase kCases[] = {
    {.num_rows = 0, .vocab_size = 3, .padded_size = 4},
    {.num_rows = 1, .vocab_size = 1, .padded_size = 1},
    {.num_rows = 3, .vocab_size = 1, .padded_size = 3},
    {.num_rows = 5, .vocab_size = 7, .padded_size = 7},
    {.num_rows = 7, .vocab_size = 131, .padded_size = 192},
    {.num_rows = 20, .vocab_size = 1025, .padded_size = 1028},
    {.num_rows = 2, .vocab_size = 50257, .padded_size = 50304},
};
INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropy,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::ValuesIn(kCases)));

TEST(CrossEntropyValues, AreThoseByHand) {
    const Device device = MakeCpuDevice();
    // Probabilities 1/4 and 3/4 in each row; the third column is padding.
    const float ln3 = std::log(3.0f);
    const auto logits = Tensor::FromVector<float>({0.0f, ln3, 9.0f, ln3, 0.0f, 9.0f}, {1, 2, 3}, device);
    const auto targets = Tensor::FromVector<int32_t>({1, 1}, {1, 2}, device);
    const CrossEntropyOptions options{.vocab_size = 2};
    const CrossEntropyOutput output = cross_entropy_forward(kCpu, *logits, *targets, options);
    EXPECT_FLOAT_EQ(output.loss_sum->ToVector<float>()[0], std::log(4.0f / 3.0f) + std::log(4.0f));
    EXPECT_EQ(output.num_valid->ToVector<int64_t>()[0], 2);
    const auto dlogits = Tensor::Empty(logits->shape(), DataType::kFloat32, device);
    cross_entropy_backward(kCpu, *Scalar(2.0f, device), *logits, *targets, *output.lse, options, *dlogits);
    const std::vector<float> grad = dlogits->ToVector<float>();
    const std::vector<float> wanted = {0.5f, -0.5f, 0.0f, 1.5f, -1.5f, 0.0f};
    for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(grad[i], wanted[i], 5e-7f) << "element " << i;
    }
}

TEST(CrossEntropyValues, AreZeroWithoutAValidTarget) {
    const Device device = MakeCpuDevice();
    // Even where the logits are NaN.
    const auto logits = Tensor::FromVector<float>({kNaN, 1.0f, 2.0f, kNaN}, {2, 2}, device);
    const auto targets = Tensor::FromVector<int32_t>({7, 7}, {2}, device);
    const CrossEntropyOptions options{.vocab_size = 2, .ignore_index = 7};
    const CrossEntropyOutput output = cross_entropy_forward(kCpu, *logits, *targets, options);
    EXPECT_EQ(output.loss_sum->ToVector<float>()[0], 0.0f);
    EXPECT_EQ(output.num_valid->ToVector<int64_t>()[0], 0);
    cross_entropy_backward(kCpu, *Scalar(1.0f, device), *logits, *targets, *output.lse, options, *logits);
    EXPECT_EQ(logits->ToVector<float>(), (std::vector<float>{0.0f, 0.0f, 0.0f, 0.0f}));
}

TEST(CrossEntropyValues, SurviveLogitsThatOverflowAnExponential) {
    const Device device = MakeCpuDevice();
    const auto logits = Tensor::FromVector<float>({1000.0f, 0.0f, -1000.0f, -2000.0f}, {2, 2}, device);
    const auto targets = Tensor::FromVector<int32_t>({1, 0}, {2}, device);
    const CrossEntropyOptions options{.vocab_size = 2};
    const CrossEntropyOutput output = cross_entropy_forward(kCpu, *logits, *targets, options);
    EXPECT_EQ(output.loss_sum->ToVector<float>()[0], 1000.0f);
    cross_entropy_backward(kCpu, *Scalar(1.0f, device), *logits, *targets, *output.lse, options, *logits);
    EXPECT_EQ(logits->ToVector<float>(), (std::vector<float>{1.0f, -1.0f, 0.0f, 0.0f}));
}

TEST(CrossEntropyValues, ShowANaNInAnyColumn) {
    constexpr int64_t kVocabSize = 37;
    const Device device = MakeCpuDevice();
    const auto targets = Tensor::FromVector<int32_t>({3}, {1}, device);
    for (int64_t v = 0; v < kVocabSize; ++v) {
        const auto logits = RandomTensor({1, kVocabSize}, DataType::kFloat32, device, 1);
        SetElement(*logits, v, kNaN);
        const auto output = cross_entropy_forward(kCpu, *logits, *targets, {.vocab_size = kVocabSize});
        EXPECT_TRUE(std::isnan(output.loss_sum->ToVector<float>()[0])) << "column " << v;
    }
}

TEST(CrossEntropyDeathTest, RefusesTargetsAndSizesThatDoNotFit) {
    const Device device = MakeCpuDevice();
    const auto logits = Tensor::Zeros({2, 4}, DataType::kFloat32, device);
    const auto targets = [&](int32_t first) { return Tensor::FromVector<int32_t>({first, 0}, {2}, device); };
    const auto forward = [&](const Tensor& target, int64_t vocab_size) {
        cross_entropy_forward(kCpu, *logits, target, {.vocab_size = vocab_size});
    };
    EXPECT_DEATH(forward(*targets(3), 3), "target 3 at row 0, vocab_size 3");
    EXPECT_DEATH(forward(*targets(-1), 3), "target -1 at row 0");
    EXPECT_DEATH(forward(*targets(0), 5), "vocab_size 5 of logits \\[2, 4\\]");
    EXPECT_DEATH(forward(*targets(0), 0), "vocab_size 0");
    EXPECT_DEATH(forward(*targets(0)->View({1, 2}), 4), "targets \\[1, 2\\] for logits \\[2, 4\\]");
    const auto wide = Tensor::Zeros({2, 5}, DataType::kFloat32, device);
    const auto lse = Tensor::Zeros({2}, DataType::kFloat32, device);
    EXPECT_DEATH(
        cross_entropy_backward(kCpu, *Scalar(1.0f, device), *logits, *targets(0), *lse, {.vocab_size = 4}, *wide),
        "dlogits \\[2, 5\\]");
}

}  // namespace
}  // namespace infini_train::kernels
