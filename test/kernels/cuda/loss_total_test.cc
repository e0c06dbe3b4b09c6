#include "infini_train/include/kernels/loss_total.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/cuda_compare.h"

namespace infini_train::kernels {
namespace {

using test::RandomTensor;
using test::SameBytes;

constexpr DeviceType kCuda = DeviceType::kCUDA;

class CudaLossTotal : public testing::Test {
 protected:
    void SetUp() override {
        INFINI_SKIP_WITHOUT_CUDA();
        cuda_ = MakeCudaDevice(0);
    }

    struct Microbatches {
        std::vector<float> sums;
        std::vector<int64_t> counts;
    };
    /// Sums of very different sizes, whose total in double shows the order of the additions.
    Microbatches Make(int64_t num_microbatches) const {
        Microbatches made;
        made.sums = RandomTensor({num_microbatches}, DataType::kFloat32, cpu_, 1)->ToVector<float>();
        for (size_t m = 0; m < made.sums.size(); ++m) {
            made.sums[m] *= m % 3 == 0 ? 1e12f : m % 3 == 1 ? 1.0f : 1e-12f;
            made.counts.push_back((int64_t{1} << 33) + static_cast<int64_t>(m * m));
        }
        return made;
    }

    std::shared_ptr<Tensor> Total(const Microbatches& microbatches) const {
        const auto num_microbatches = static_cast<int64_t>(microbatches.sums.size());
        const auto sums = Tensor::FromVector(microbatches.sums, {num_microbatches}, cuda_);
        const auto counts = Tensor::FromVector(microbatches.counts, {num_microbatches}, cuda_);
        TensorList views;
        std::vector<const Tensor*> sum_list;
        std::vector<const Tensor*> count_list;
        for (int64_t m = 0; m < num_microbatches; ++m) {
            views.push_back(sums->Slice(m, m + 1));
            sum_list.push_back(views.back().get());
            views.push_back(counts->Slice(m, m + 1));
            count_list.push_back(views.back().get());
        }
        const auto total = Tensor::FromVector(std::vector<int64_t>{-1, -1}, {2}, cuda_);
        loss_total(kCuda, sum_list, count_list, *total);
        return total;
    }

    Device cpu_ = MakeCpuDevice();
    Device cuda_;
};

TEST_F(CudaLossTotal, AddsInDoubleInTheOrderOfTheMicrobatches) {
    // 512 are what one launch takes.
    for (const int64_t num_microbatches : {0, 1, 2, 7, 511, 512, 513, 1300}) {
        const Microbatches microbatches = Make(num_microbatches);
        double sum = 0.0;
        int64_t count = 0;
        for (size_t m = 0; m < microbatches.sums.size(); ++m) {
            sum += static_cast<double>(microbatches.sums[m]);
            count += microbatches.counts[m];
        }
        const std::vector<int64_t> total = Total(microbatches)->ToVector<int64_t>();
        EXPECT_EQ(std::bit_cast<double>(total[0]), sum) << num_microbatches;
        EXPECT_EQ(total[1], count) << num_microbatches;
    }
}

TEST_F(CudaLossTotal, GivesTheSameBytesTwice) {
    EXPECT_TRUE(SameBytes(*Total(Make(1300)), *Total(Make(1300))));
}

TEST_F(CudaLossTotal, DividesTheSumsOfAllRowsByTheirCounts) {
    // 128 are what the kernel loads at once.
    for (const int64_t num_rows : {1, 2, 7, 128, 129, 300}) {
        std::vector<int64_t> totals;
        double sum = 0.0;
        int64_t count = 0;
        for (int64_t row = 0; row < num_rows; ++row) {
            const double row_sum = 0.1 * static_cast<double>(row + 1) * (row % 2 == 0 ? 1e9 : 1e-9);
            const int64_t row_count = (int64_t{1} << 33) + row;
            totals.push_back(std::bit_cast<int64_t>(row_sum));
            totals.push_back(row_count);
            sum += row_sum;
            count += row_count;
        }
        const LossMean result = loss_mean(kCuda, *Tensor::FromVector(totals, {num_rows, 2}, cuda_));
        EXPECT_EQ(result.mean->ToVector<float>()[0], static_cast<float>(sum / static_cast<double>(count))) << num_rows;
        EXPECT_EQ(result.num_valid->ToVector<int64_t>()[0], count) << num_rows;
    }
}

TEST_F(CudaLossTotal, HasAMeanOfZeroWithoutTargets) {
    for (const int64_t num_rows : {0, 3}) {
        const LossMean result = loss_mean(kCuda, *Tensor::Zeros({num_rows, 2}, DataType::kInt64, cuda_));
        EXPECT_EQ(result.mean->ToVector<float>()[0], 0.0f) << num_rows;
        EXPECT_EQ(result.num_valid->ToVector<int64_t>()[0], 0) << num_rows;
    }
}

using CudaLossTotalDeathTest = CudaLossTotal;

// A forked child cannot use the GPU, so what these calls need is made before them.
TEST_F(CudaLossTotalDeathTest, RefusesTensorsThatDoNotFit) {
    const auto sum = Tensor::Zeros({1}, DataType::kFloat32, cuda_);
    const auto count = Tensor::Zeros({1}, DataType::kInt64, cuda_);
    const auto total = Tensor::Zeros({2}, DataType::kInt64, cuda_);
    const std::vector<const Tensor*> sums = {sum.get()};
    const std::vector<const Tensor*> counts = {count.get()};
    EXPECT_DEATH(loss_total(kCuda, sums, {}, *total), "loss_total: sums and counts");
    EXPECT_DEATH(loss_total(kCuda, counts, counts, *total), "loss_total: sum 0 \\[1\\] int64");
    EXPECT_DEATH(loss_total(kCuda, sums, sums, *total), "loss_total: count 0 \\[1\\] float32");
    EXPECT_DEATH(loss_total(kCuda, sums, counts, *count), "loss_total: total \\[1\\]");
    EXPECT_DEATH(loss_mean(kCuda, *total), "loss_mean.*\\[2\\]");
}

}  // namespace
}  // namespace infini_train::kernels
