#include "infini_train/include/kernels/attention_cached.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostream>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "test/kernels/attention_cached_case.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::NumThreadsGuard;
using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;

class AttentionCached : public testing::TestWithParam<std::tuple<DataType, CachedCase>> {
 protected:
    DataType dtype() const { return std::get<0>(GetParam()); }
    const CachedCase& size() const { return std::get<1>(GetParam()); }

    Device device_ = MakeCpuDevice();
    // Scores of a few units: neither uniform nor one-hot.
    std::shared_ptr<Tensor> qkv_ = RandomTensor(size().qkv_shape(), dtype(), device_, 1, 2.0f);
};

TEST_P(AttentionCached, ByPiecesIsAttentionOfTheWhole) {
    const std::vector<double> wanted = ToDoubles(*attention_forward(kCpu, *qkv_, size().heads).out);
    const CachedRun run = RunByPieces(size(), *qkv_);
    const std::vector<double> got = ToDoubles(*run.out);
    ASSERT_EQ(got.size(), wanted.size());
    // Both compute in float32, in different orders; a bfloat16 result may be rounded to the neighbour.
    const double tolerance = dtype() == DataType::kBFloat16 ? 0x1p-7 : 2e-6;
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], wanted[i], tolerance * std::max(1.0, std::abs(wanted[i]))) << "element " << i;
    }
}

TEST_P(AttentionCached, KeepsKeysAndValuesAsTheyAre) {
    const CachedRun run = RunByPieces(size(), *qkv_);
    const std::vector<double> qkv = ToDoubles(*qkv_);
    const std::vector<double> keys = ToDoubles(*run.keys);
    const std::vector<double> values = ToDoubles(*run.values);
    const int64_t kv_width = size().heads.num_kv_heads * size().head_dim;
    const int64_t key_offset = size().heads.num_heads * size().head_dim;
    for (int64_t b = 0; b < size().batch_size; ++b) {
        for (int64_t n = 0; n < size().max_positions(); ++n) {
            for (int64_t i = 0; i < kv_width; ++i) {
                const auto kept = static_cast<size_t>((b * size().max_positions() + n) * kv_width + i);
                if (n >= size().length()) {
                    ASSERT_TRUE(std::isnan(keys[kept]) && std::isnan(values[kept])) << "position " << n;
                    continue;
                }
                const auto from = static_cast<size_t>((b * size().length() + n) * size().row_width() + key_offset + i);
                ASSERT_EQ(keys[kept], qkv[from]) << "position " << n;
                ASSERT_EQ(values[kept], qkv[from + static_cast<size_t>(kv_width)]) << "position " << n;
            }
        }
    }
}

TEST_P(AttentionCached, FromPositionZeroHasTheBitsOfAttention) {
    const CachedCase whole = {.batch_size = size().batch_size,
                              .pieces = {size().length()},
                              .heads = size().heads,
                              .head_dim = size().head_dim};
    EXPECT_TRUE(SameBits(*RunByPieces(whole, *qkv_).out, *attention_forward(kCpu, *qkv_, size().heads).out));
}

TEST_P(AttentionCached, HasTheSameBitsOnOneAndThreeThreads) {
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        return RunByPieces(size(), *qkv_).out;
    };
    EXPECT_TRUE(SameBits(*run(1), *run(3)));
}

INSTANTIATE_TEST_SUITE_P(Sizes, AttentionCached,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::ValuesIn(CachedCases())));

TEST(AttentionCachedValues, AreThoseByHand) {
    const Device device = MakeCpuDevice();
    const float ln3 = std::log(3.0f);
    // One head of one channel; rows are q, k, v. Position 1 weighs position 0 with 1 / 4 and itself with 3 / 4.
    const auto keys = Tensor::Zeros({1, 3, 1, 1}, DataType::kFloat32, device);
    const auto values = Tensor::Zeros({1, 3, 1, 1}, DataType::kFloat32, device);
    const auto first = Tensor::FromVector<float>({1.0f, 0.0f, 1.0f}, {1, 1, 3}, device);
    const auto second = Tensor::FromVector<float>({1.0f, ln3, 5.0f}, {1, 1, 3}, device);
    EXPECT_EQ(attention_cached(kCpu, *first, {1, 1}, 0, *keys, *values)->ToVector<float>(), std::vector<float>{1.0f});
    const auto out = attention_cached(kCpu, *second, {1, 1}, 1, *keys, *values);
    EXPECT_EQ(out->shape(), (Shape{1, 1, 1}));
    EXPECT_FLOAT_EQ(out->ToVector<float>()[0], 0.25f * 1.0f + 0.75f * 5.0f);
    EXPECT_EQ(keys->ToVector<float>(), (std::vector<float>{0.0f, ln3, 0.0f}));
    EXPECT_EQ(values->ToVector<float>(), (std::vector<float>{1.0f, 5.0f, 0.0f}));
}

TEST(AttentionCachedValues, SurviveScoresThatOverflowAnExponential) {
    const Device device = MakeCpuDevice();
    const auto keys = Tensor::FromVector<float>({100.0f, -100.0f, 0.0f}, {1, 3, 1, 1}, device);
    const auto values = Tensor::FromVector<float>({1.0f, 2.0f, 0.0f}, {1, 3, 1, 1}, device);
    for (const float query : {100.0f, -100.0f}) {
        const auto qkv = Tensor::FromVector<float>({query, 0.0f, 3.0f}, {1, 1, 3}, device);
        EXPECT_EQ(attention_cached(kCpu, *qkv, {1, 1}, 2, *keys, *values)->ToVector<float>(),
                  std::vector<float>{query > 0.0f ? 1.0f : 2.0f});
    }
}

TEST(AttentionCachedValues, ShowANaN) {
    const Device device = MakeCpuDevice();
    const auto keys = Tensor::Zeros({1, 5, 1, 4}, DataType::kFloat32, device);
    const auto values = Tensor::Zeros({1, 5, 1, 4}, DataType::kFloat32, device);
    keys->data<float>()[2 * 4] = std::numeric_limits<float>::quiet_NaN();
    const auto qkv = RandomTensor({1, 1, 12}, DataType::kFloat32, device, 2);
    for (const float out : attention_cached(kCpu, *qkv, {1, 1}, 4, *keys, *values)->ToVector<float>()) {
        EXPECT_TRUE(std::isnan(out));
    }
}

TEST(AttentionCachedDeathTest, RefusesOperandsThatDoNotFit) {
    const Device device = MakeCpuDevice();
    const auto qkv = Tensor::Zeros({1, 2, 12}, DataType::kFloat32, device);
    const auto kept = Tensor::Zeros({1, 5, 1, 3}, DataType::kFloat32, device);
    const auto narrow = Tensor::Zeros({1, 5, 1, 3}, DataType::kBFloat16, device);
    const auto other = Tensor::Zeros({1, 4, 1, 3}, DataType::kFloat32, device);
    const AttentionHeads heads = {2, 1};
    EXPECT_DEATH(attention_cached(kCpu, *qkv, heads, 4, *kept, *kept), "2 positions after 4 in a cache of 5");
    EXPECT_DEATH(attention_cached(kCpu, *qkv, heads, -1, *kept, *kept), "2 positions after -1");
    EXPECT_DEATH(attention_cached(kCpu, *qkv, heads, 0, *kept, *other), "\\[1, 4, 1, 3\\] float32, wanted \\[1, 5, 1");
    EXPECT_DEATH(attention_cached(kCpu, *qkv, heads, 0, *narrow, *kept), "bfloat16, wanted .* float32");
    EXPECT_DEATH(attention_cached(kCpu, *qkv, {4, 1}, 0, *kept, *kept), "wanted \\[1, 5, 1, 2\\]");
    EXPECT_DEATH(attention_cached(kCpu, *qkv, {3, 2}, 0, *kept, *kept), "3 heads over 2 key/value heads");
}

}  // namespace
}  // namespace infini_train::kernels
