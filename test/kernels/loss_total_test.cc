#include "infini_train/include/kernels/loss_total.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace infini_train::kernels {
namespace {

constexpr DeviceType kCpu = DeviceType::kCPU;

struct Total {
    double sum = 0.0;
    int64_t count = 0;
};

class LossTotalKernel : public testing::Test {
 protected:
    /// Of micro-batches; what the result held before must not matter.
    Total Add(const std::vector<float>& sums, const std::vector<int64_t>& counts) const {
        TensorList kept;
        std::vector<const Tensor*> sum_list;
        std::vector<const Tensor*> count_list;
        for (const float sum : sums) {
            kept.push_back(Tensor::FromVector(std::vector<float>{sum}, {1}, device_));
            sum_list.push_back(kept.back().get());
        }
        for (const int64_t count : counts) {
            kept.push_back(Tensor::FromVector(std::vector<int64_t>{count}, {1}, device_));
            count_list.push_back(kept.back().get());
        }
        const auto total = Tensor::FromVector<int64_t>({-7, -7}, {2}, device_);
        loss_total(kCpu, sum_list, count_list, *total);
        const std::vector<int64_t> values = total->ToVector<int64_t>();
        return {.sum = std::bit_cast<double>(values[0]), .count = values[1]};
    }

    struct Mean {
        float mean = 0.0f;
        int64_t num_valid = 0;
    };
    Mean MeanOf(const std::vector<Total>& totals) const {
        std::vector<int64_t> values;
        for (const Total& total : totals) {
            values.push_back(std::bit_cast<int64_t>(total.sum));
            values.push_back(total.count);
        }
        const auto [mean, num_valid] =
            loss_mean(kCpu, *Tensor::FromVector(values, {static_cast<int64_t>(totals.size()), 2}, device_));
        EXPECT_EQ(mean->shape(), Shape{1});
        EXPECT_EQ(num_valid->shape(), Shape{1});
        return {.mean = mean->ToVector<float>()[0], .num_valid = num_valid->ToVector<int64_t>()[0]};
    }

    Device device_ = MakeCpuDevice();
};

TEST_F(LossTotalKernel, AddsInDoubleInTheOrderOfTheMicrobatches) {
    EXPECT_EQ(Add({0x1p24f, 1.0f, 1.0f}, {1, 2, 3}).sum, 0x1p24 + 2.0);  // float32 loses the ones
    EXPECT_EQ(Add({0x1p60f, 1.0f, -0x1p60f}, {1, 1, 1}).sum, 0.0);       // double loses it, too
    EXPECT_EQ(Add({0x1p60f, -0x1p60f, 1.0f}, {1, 1, 1}).sum, 1.0);
}

TEST_F(LossTotalKernel, AddsCountsBeyond32Bits) {
    EXPECT_EQ(Add({1.0f, 2.0f}, {int64_t{1} << 40, 3}).count, (int64_t{1} << 40) + 3);
}

TEST_F(LossTotalKernel, OfNoMicrobatchesIsZero) {
    const Total total = Add({}, {});
    EXPECT_EQ(total.sum, 0.0);
    EXPECT_EQ(total.count, 0);
}

TEST_F(LossTotalKernel, KeepsNaN) {
    EXPECT_TRUE(std::isnan(Add({1.0f, std::numeric_limits<float>::quiet_NaN()}, {1, 1}).sum));
    EXPECT_TRUE(std::isnan(MeanOf({{.sum = std::numeric_limits<double>::quiet_NaN(), .count = 1}}).mean));
}

TEST_F(LossTotalKernel, HasTheMeanOfAllReplicas) {
    const Mean mean = MeanOf({{.sum = 1.0, .count = 1}, {.sum = 0.0, .count = 0}, {.sum = 4.0, .count = 2}});
    EXPECT_EQ(mean.num_valid, 3);
    EXPECT_EQ(mean.mean, static_cast<float>(5.0 / 3.0));
    // In the order of the replicas.
    EXPECT_EQ(MeanOf({{.sum = 0x1p60, .count = 1}, {.sum = 1.0, .count = 0}, {.sum = -0x1p60, .count = 0}}).mean, 0.0f);
    EXPECT_EQ(MeanOf({{.sum = 0x1p60, .count = 1}, {.sum = -0x1p60, .count = 0}, {.sum = 1.0, .count = 0}}).mean, 1.0f);
}

TEST_F(LossTotalKernel, HasAMeanOfZeroWithoutTargets) {
    const Mean mean = MeanOf({{.sum = 0.0, .count = 0}});
    EXPECT_EQ(mean.mean, 0.0f);
    EXPECT_EQ(mean.num_valid, 0);
    EXPECT_EQ(MeanOf({}).mean, 0.0f);
}

using LossTotalDeathTest = LossTotalKernel;

TEST_F(LossTotalDeathTest, RefusesOperandsThatDoNotFit) {
    const auto sum = Tensor::Zeros({1}, DataType::kFloat32, device_);
    const auto count = Tensor::Zeros({1}, DataType::kInt64, device_);
    const auto pair = Tensor::Zeros({2}, DataType::kInt64, device_);
    const Tensor* const sums[] = {sum.get()};
    const Tensor* const counts[] = {count.get()};
    EXPECT_DEATH(loss_total(kCpu, sums, {}, *pair), "loss_total: sums and counts");
    EXPECT_DEATH(loss_total(kCpu, counts, counts, *pair), "loss_total: sum 0 \\[1\\] int64");
    EXPECT_DEATH(loss_total(kCpu, sums, sums, *pair), "loss_total: count 0 \\[1\\] float32");
    EXPECT_DEATH(loss_total(kCpu, sums, counts, *count), "loss_total: total \\[1\\] int64");
    EXPECT_DEATH(loss_mean(kCpu, *pair), "loss_mean: totals \\[2\\] int64");
}

}  // namespace
}  // namespace infini_train::kernels
