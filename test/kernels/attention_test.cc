#include "infini_train/include/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::NumThreadsGuard;
using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;

struct AttentionCase {
    int64_t batch_size;
    int64_t length;
    AttentionHeads heads;
    int64_t head_dim;

    int64_t row_width() const { return (heads.num_heads + 2 * heads.num_kv_heads) * head_dim; }
    Shape qkv_shape() const { return {batch_size, length, row_width()}; }
    Shape out_shape() const { return {batch_size, length, heads.num_heads * head_dim}; }
};

void PrintTo(const AttentionCase& c, std::ostream* os) {
    *os << "B " << c.batch_size << " T " << c.length << " H " << c.heads.num_heads << " K " << c.heads.num_kv_heads
        << " D " << c.head_dim;
}

/// The formulas in double, with the row of probabilities of each query at hand.
struct NaiveAttention {
    std::vector<double> out, lse, dqkv;

    NaiveAttention(const AttentionCase& c, const std::vector<double>& qkv, const std::vector<double>& dout)
        : out(dout.size()), dqkv(qkv.size()) {
        const int64_t group = c.heads.num_heads / c.heads.num_kv_heads;
        const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
        for (int64_t b = 0; b < c.batch_size; ++b) {
            for (int64_t h = 0; h < c.heads.num_heads; ++h) {
                const int64_t key_slice = c.heads.num_heads + h / group;
                const auto at = [&](int64_t t, int64_t slice) {
                    return static_cast<size_t>((b * c.length + t) * c.row_width() + slice * c.head_dim);
                };
                const auto dim = static_cast<size_t>(c.head_dim);
                for (int64_t t = 0; t < c.length; ++t) {
                    const size_t q = at(t, h);
                    const auto o = static_cast<size_t>(((b * c.length + t) * c.heads.num_heads + h) * c.head_dim);
                    std::vector<double> scores;
                    for (int64_t u = 0; u <= t; ++u) {
                        double score = 0.0;
                        for (size_t d = 0; d < dim; ++d) {
                            score += qkv[q + d] * qkv[at(u, key_slice) + d];
                        }
                        scores.push_back(score * scale);
                    }
                    const double maximum = *std::max_element(scores.begin(), scores.end());
                    double sum = 0.0;
                    for (const double score : scores) {
                        sum += std::exp(score - maximum);
                    }
                    lse.push_back(maximum + std::log(sum));
                    double delta = 0.0;
                    for (size_t d = 0; d < dim; ++d) {
                        for (int64_t u = 0; u <= t; ++u) {
                            const double p = std::exp(scores[static_cast<size_t>(u)] - lse.back());
                            out[o + d] += p * qkv[at(u, key_slice + c.heads.num_kv_heads) + d];
                        }
                        delta += dout[o + d] * out[o + d];
                    }
                    for (int64_t u = 0; u <= t; ++u) {
                        const size_t k = at(u, key_slice);
                        const size_t v = at(u, key_slice + c.heads.num_kv_heads);
                        const double p = std::exp(scores[static_cast<size_t>(u)] - lse.back());
                        double dp = 0.0;
                        for (size_t d = 0; d < dim; ++d) {
                            dp += dout[o + d] * qkv[v + d];
                        }
                        const double ds = p * (dp - delta) * scale;
                        for (size_t d = 0; d < dim; ++d) {
                            dqkv[v + d] += p * dout[o + d];
                            dqkv[k + d] += ds * qkv[q + d];
                            dqkv[q + d] += ds * qkv[k + d];
                        }
                    }
                }
            }
        }
    }
};

/// Within `tolerance` of the largest wanted value.
void ExpectNear(const Tensor& got, const std::vector<double>& wanted, double tolerance, const std::string& what) {
    const std::vector<double> values = ToDoubles(got);
    ASSERT_EQ(values.size(), wanted.size()) << what;
    double scale = 0.0;
    for (const double value : wanted) {
        scale = std::max(scale, std::abs(value));
    }
    for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], wanted[i], tolerance * scale) << what << ", element " << i << " of " << values.size();
    }
}

class Attention : public testing::TestWithParam<std::tuple<DataType, AttentionCase>> {
 protected:
    DataType dtype() const { return std::get<0>(GetParam()); }
    const AttentionCase& size() const { return std::get<1>(GetParam()); }

    Device device_ = MakeCpuDevice();
    // Scores of a few units: neither uniform nor one-hot.
    std::shared_ptr<Tensor> qkv_ = RandomTensor(size().qkv_shape(), dtype(), device_, 1, 2.0f);
    std::shared_ptr<Tensor> dout_ = RandomTensor(size().out_shape(), dtype(), device_, 2);
};

TEST_P(Attention, IsTheNaiveOneBothWays) {
    const NaiveAttention wanted(size(), ToDoubles(*qkv_), ToDoubles(*dout_));
    const AttentionOutput output = attention_forward(kCpu, *qkv_, size().heads);
    // bfloat16: out is rounded, and the backward starts from the rounded one; the rest is float32.
    const bool narrow = dtype() == DataType::kBFloat16;
    EXPECT_EQ(output.out->shape(), size().out_shape());
    EXPECT_EQ(output.out->dtype(), dtype());
    EXPECT_EQ(output.lse->shape(), (Shape{size().batch_size, size().heads.num_heads, size().length}));
    ExpectNear(*output.out, wanted.out, narrow ? 4e-3 : 1e-6, "out");
    ExpectNear(*output.lse, wanted.lse, 1e-6, "lse");
    const auto dqkv = attention_backward(kCpu, *dout_, *qkv_, *output.out, *output.lse, size().heads, true);
    EXPECT_EQ(dqkv->dtype(), dtype());
    EXPECT_EQ(dqkv->shape(), size().qkv_shape());
    ExpectNear(*dqkv, wanted.dqkv, narrow ? 1e-2 : 2e-6, "dqkv");
}

TEST_P(Attention, HasTheSameBitsOnOneAndThreeThreads) {
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        const AttentionOutput output = attention_forward(kCpu, *qkv_, size().heads);
        return TensorList{output.out, output.lse,
                          attention_backward(kCpu, *dout_, *qkv_, *output.out, *output.lse, size().heads, true)};
    };
    const TensorList one = run(1);
    const TensorList three = run(3);
    for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(SameBits(*one[i], *three[i])) << "result " << i;
    }
}

constexpr AttentionCase kCases[] = {
    {.batch_size = 0, .length = 5, .heads = {2, 2}, .head_dim = 4},
    {.batch_size = 2, .length = 0, .heads = {2, 1}, .head_dim = 4},
    {.batch_size = 1, .length = 1, .heads = {1, 1}, .head_dim = 1},
    {.batch_size = 2, .length = 1, .heads = {4, 2}, .head_dim = 64},
    {.batch_size = 2, .length = 7, .heads = {4, 2}, .head_dim = 8},
    {.batch_size = 1, .length = 63, .heads = {2, 2}, .head_dim = 17},
    {.batch_size = 2, .length = 64, .heads = {6, 6}, .head_dim = 64},
    {.batch_size = 1, .length = 65, .heads = {3, 1}, .head_dim = 24},
    {.batch_size = 2, .length = 130, .heads = {3, 1}, .head_dim = 5},
    {.batch_size = 1, .length = 100, .heads = {4, 2}, .head_dim = 80},
    {.batch_size = 1, .length = 70, .heads = {2, 1}, .head_dim = 256},
    {.batch_size = 1, .length = 200, .heads = {2, 1}, .head_dim = 33},
};
INSTANTIATE_TEST_SUITE_P(Sizes, Attention,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::ValuesIn(kCases)));

TEST(AttentionValues, AreThoseByHand) {
    const Device device = MakeCpuDevice();
    const float ln3 = std::log(3.0f);
    // Two positions of one head of one channel. Rows: q, k, v.
    const auto qkv = Tensor::FromVector<float>({1.0f, 0.0f, 1.0f, 1.0f, ln3, 5.0f}, {1, 2, 3}, device);
    const AttentionOutput output = attention_forward(kCpu, *qkv, {1, 1});
    const std::vector<float> out = output.out->ToVector<float>();
    const std::vector<float> lse = output.lse->ToVector<float>();
    EXPECT_FLOAT_EQ(out[0], 1.0f);
    EXPECT_FLOAT_EQ(out[1], 0.25f * 1.0f + 0.75f * 5.0f);
    EXPECT_FLOAT_EQ(lse[0], 0.0f);
    EXPECT_FLOAT_EQ(lse[1], std::log(4.0f));
    const auto dout = Tensor::FromVector<float>({1.0f, 1.0f}, {1, 2, 1}, device);
    const std::vector<float> dqkv =
        attention_backward(kCpu, *dout, *qkv, *output.out, *output.lse, {1, 1}, true)->ToVector<float>();
    const std::vector<float> wanted = {0.0f, -0.75f, 1.25f, 0.75f * ln3, 0.75f, 0.75f};
    for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(dqkv[i], wanted[i], 2e-6f) << "element " << i;
    }
}

TEST(AttentionValues, DoNotDependOnLaterPositions) {
    constexpr int64_t kLength = 150;
    constexpr int64_t kWidth = 3 * 16;
    const Device device = MakeCpuDevice();
    const auto qkv = RandomTensor({1, kLength, kWidth}, DataType::kFloat32, device, 3);
    const auto before = attention_forward(kCpu, *qkv, {1, 1}).out->ToVector<float>();
    for (int64_t changed = kLength - 1; changed > 0; changed -= 29) {
        std::fill_n(qkv->data<float>() + changed * kWidth, kWidth, 100.0f);
        const auto after = attention_forward(kCpu, *qkv, {1, 1}).out->ToVector<float>();
        EXPECT_TRUE(std::equal(before.begin(), before.begin() + changed * 16, after.begin())) << "position " << changed;
        EXPECT_NE(before, after);
    }
}

TEST(AttentionValues, SurviveScoresThatOverflowAnExponential) {
    const Device device = MakeCpuDevice();
    // Scores of position 1: 1e4 and -1e4, then the other way round at position 3.
    const auto qkv = Tensor::FromVector<float>(
        {100.0f, 100.0f, 1.0f, 100.0f, -100.0f, 2.0f, 100.0f, 0.0f, 3.0f, -100.0f, 0.0f, 4.0f}, {1, 4, 3}, device);
    const AttentionOutput output = attention_forward(kCpu, *qkv, {1, 1});
    EXPECT_EQ(output.out->ToVector<float>(), (std::vector<float>{1.0f, 1.0f, 1.0f, 2.0f}));
    EXPECT_EQ(output.lse->ToVector<float>(), (std::vector<float>{1e4f, 1e4f, 1e4f, 1e4f}));
    const auto dout = Tensor::FromVector<float>({1.0f, 1.0f, 1.0f, 1.0f}, {1, 4, 1}, device);
    const std::vector<float> dqkv =
        attention_backward(kCpu, *dout, *qkv, *output.out, *output.lse, {1, 1}, true)->ToVector<float>();
    const std::vector<float> wanted = {0.0f, 0.0f, 3.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    EXPECT_EQ(dqkv, wanted);
}

TEST(AttentionValues, ShowANaN) {
    const auto qkv = RandomTensor({1, 70, 3 * 8}, DataType::kFloat32, MakeCpuDevice(), 4);
    qkv->data<float>()[10 * 24] = std::numeric_limits<float>::quiet_NaN();  // the query of position 10
    const std::vector<float> out = attention_forward(kCpu, *qkv, {1, 1}).out->ToVector<float>();
    for (size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(std::isnan(out[i]), i / 8 == 10) << "element " << i;
    }
}

TEST(HeadDim, IsTheWidthOfOneOfAllSlices) {
    const Device device = MakeCpuDevice();
    EXPECT_EQ(HeadDim(*Tensor::Zeros({1, 1, 3 * 12 * 64}, DataType::kFloat32, device), {12, 12}), 64);
    EXPECT_EQ(HeadDim(*Tensor::Zeros({1, 1, (8 + 2 * 2) * 5}, DataType::kFloat32, device), {8, 2}), 5);
}

// bugs.csv O34
TEST(HeadDimDeathTest, RefusesHeadsThatDoNotFit) {
    const auto qkv = Tensor::Zeros({1, 2, 42}, DataType::kFloat32, MakeCpuDevice());
    EXPECT_DEATH(HeadDim(*qkv, {3, 2}), "3 heads over 2 key/value heads");
    EXPECT_DEATH(HeadDim(*qkv, {3, 0}), "3 heads, 0 key/value heads");
    EXPECT_DEATH(HeadDim(*qkv, {3, -3}), "3 heads, -3 key/value heads");
    EXPECT_DEATH(HeadDim(*qkv, {0, 1}), "0 heads, 1 key/value heads");
    EXPECT_DEATH(HeadDim(*qkv, {3, 1}), "\\[1, 2, 42\\] with 3 heads and 1 key/value heads");
    EXPECT_DEATH(attention_forward(kCpu, *qkv, {3, 2}), "3 heads over 2 key/value heads");
}

TEST(AttentionDeathTest, RefusesOperandsThatDoNotFit) {
    const Device device = MakeCpuDevice();
    const auto qkv = Tensor::Zeros({1, 2, 6}, DataType::kFloat32, device);
    const auto out = Tensor::Zeros({1, 2, 2}, DataType::kFloat32, device);
    const auto lse = Tensor::Zeros({1, 1, 2}, DataType::kFloat32, device);
    const auto flat = Tensor::Zeros({2, 6}, DataType::kFloat32, device);
    EXPECT_DEATH(attention_forward(kCpu, *flat, {1, 1}), "attention_forward.*\\[2, 6\\]");
    EXPECT_DEATH(attention_backward(kCpu, *flat, *qkv, *out, *lse, {1, 1}, true), "\\[2, 6\\].*wanted \\[1, 2, 2\\]");
    EXPECT_DEATH(attention_backward(kCpu, *out, *qkv, *out, *out, {1, 1}, true),
                 "lse \\[1, 2, 2\\], wanted \\[1, 1, 2\\]");
}

}  // namespace
}  // namespace infini_train::kernels
