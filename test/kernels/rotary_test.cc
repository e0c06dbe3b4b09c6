#include "infini_train/include/kernels/rotary.h"

#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "test/kernels/rotary_case.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::NumThreadsGuard;
using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;

class Rotary : public testing::TestWithParam<std::tuple<DataType, RotaryCase>> {
 protected:
    DataType dtype() const { return std::get<0>(GetParam()); }
    const RotaryCase& size() const { return std::get<1>(GetParam()); }
    int64_t num_slices() const { return size().heads.num_heads + 2 * size().heads.num_kv_heads; }

    Device device_ = MakeCpuDevice();
    std::shared_ptr<Tensor> qkv_ =
        RandomTensor({size().batch_size, size().length, num_slices() * size().head_dim}, dtype(), device_, 1);
    std::shared_ptr<Tensor> angles_ = Angles(size().num_angles, size().head_dim, device_);
};

TEST_P(Rotary, TurnsQueriesAndKeysAndCopiesValues) {
    for (const bool inverse : {false, true}) {
        const auto y = rotary(kCpu, *qkv_, *angles_, size().heads, inverse);
        ASSERT_EQ(y->shape(), qkv_->shape());
        ASSERT_EQ(y->dtype(), dtype());
        const std::vector<double> from = ToDoubles(*qkv_);
        const std::vector<double> got = ToDoubles(*y);
        const std::vector<double> angles = ToDoubles(*angles_);
        const auto dim = static_cast<size_t>(size().head_dim);
        const auto slices = static_cast<size_t>(num_slices());
        const auto turned = static_cast<size_t>(size().heads.num_heads + size().heads.num_kv_heads);
        const double tolerance = dtype() == DataType::kBFloat16 ? 0x1.01p-8 : 2e-7;
        for (size_t i = 0; i + 1 < from.size(); i += 2) {
            const size_t t = i / dim / slices % static_cast<size_t>(size().length);
            if (i / dim % slices >= turned) {
                ASSERT_EQ(got[i], from[i]);
                ASSERT_EQ(got[i + 1], from[i + 1]);
                continue;
            }
            const double c = angles[t * dim + i % dim];
            const double s = angles[t * dim + i % dim + 1] * (inverse ? -1.0 : 1.0);
            ASSERT_NEAR(got[i], from[i] * c - from[i + 1] * s, tolerance) << "element " << i;
            ASSERT_NEAR(got[i + 1], from[i] * s + from[i + 1] * c, tolerance) << "element " << i + 1;
        }
    }
}

TEST_P(Rotary, IsUndoneByItsInverse) {
    const auto there = rotary(kCpu, *qkv_, *angles_, size().heads, false);
    const std::vector<double> back = ToDoubles(*rotary(kCpu, *there, *angles_, size().heads, true));
    const std::vector<double> from = ToDoubles(*qkv_);
    for (size_t i = 0; i < from.size(); ++i) {
        ASSERT_NEAR(back[i], from[i], dtype() == DataType::kBFloat16 ? 0x1p-6 : 4e-7) << "element " << i;
    }
}

TEST_P(Rotary, HasTheSameBitsOnOneAndThreeThreads) {
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        return rotary(kCpu, *qkv_, *angles_, size().heads, false);
    };
    EXPECT_TRUE(SameBits(*run(1), *run(3)));
}

constexpr RotaryCase kCases[] = {
    {.batch_size = 1, .length = 0, .heads = {1, 1}, .head_dim = 2, .num_angles = 1},
    {.batch_size = 1, .length = 1, .heads = {1, 1}, .head_dim = 2, .num_angles = 1},
    {.batch_size = 2, .length = 7, .heads = {4, 2}, .head_dim = 6, .num_angles = 9},
    {.batch_size = 2, .length = 65, .heads = {6, 2}, .head_dim = 34, .num_angles = 65},
};
INSTANTIATE_TEST_SUITE_P(Sizes, Rotary,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::ValuesIn(kCases)));

TEST(RotaryValues, AreThoseByHand) {
    const Device device = MakeCpuDevice();
    // Two positions of one query, key and value of one pair; position 0 stays, position 1 makes a quarter turn.
    const auto qkv = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, {1, 2, 6}, device);
    const auto angles = Tensor::FromVector<float>({1, 0, 0, 1}, {2, 1, 2}, device);
    EXPECT_EQ(rotary(kCpu, *qkv, *angles, {1, 1}, false)->ToVector<float>(),
              (std::vector<float>{1, 2, 3, 4, 5, 6, -2, 1, -4, 3, 5, 6}));
    EXPECT_EQ(rotary(kCpu, *qkv, *angles, {1, 1}, true)->ToVector<float>(),
              (std::vector<float>{1, 2, 3, 4, 5, 6, 2, -1, 4, -3, 5, 6}));
}

TEST(RotaryDeathTest, RefusesAnglesThatDoNotFit) {
    const Device device = MakeCpuDevice();
    const auto qkv = Tensor::Zeros({1, 3, 12}, DataType::kFloat32, device);
    EXPECT_DEATH(rotary(kCpu, *qkv, *Angles(2, 4, device), {1, 1}, false), "angles \\[2, 2, 2\\] for 3 positions");
    EXPECT_DEATH(rotary(kCpu, *qkv, *Angles(3, 6, device), {1, 1}, false), "angles \\[3, 3, 2\\].*4 wide");
    const auto odd = Tensor::Zeros({1, 3, 9}, DataType::kFloat32, device);
    EXPECT_DEATH(rotary(kCpu, *odd, *Angles(3, 2, device), {1, 1}, false), "heads are 3 wide");
}

}  // namespace
}  // namespace infini_train::kernels
