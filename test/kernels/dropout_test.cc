#include "infini_train/include/kernels/dropout.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
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
constexpr DropoutKey kKey = {.seed = 7, .step = 3, .layer = 5, .first_sample = 11};

TEST(Dropout, IsDecidedByTheUniformNumberOfEachPosition) {
    const Device device = MakeCpuDevice();
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        // Less than a Philox block, one more than a group of 64, one more than a task of 4096.
        for (const int64_t columns : {1, 7, 65, 4097}) {
            const auto x = RandomTensor({3, columns}, dtype, device, 1);
            const auto y = dropout(kCpu, *x, 0.3f, kKey);
            ASSERT_EQ(y->shape(), x->shape());
            ASSERT_EQ(y->dtype(), dtype);
            const std::vector<double> x_values = ToDoubles(*x);
            const std::vector<double> values = ToDoubles(*y);
            for (size_t i = 0; i < values.size(); ++i) {
                const uint64_t sample = i / static_cast<size_t>(columns);
                const uint64_t position = i % static_cast<size_t>(columns);
                const RandomStream random = {
                    .seed = kKey.seed, .stream = Combine(Combine(kKey.step, kKey.layer), kKey.first_sample + sample)};
                const float kept = static_cast<float>(x_values[i]) / (1.0f - 0.3f);
                const float rounded = dtype == DataType::kBFloat16 ? static_cast<float>(BFloat16(kept)) : kept;
                ASSERT_EQ(values[i], Uniform(random, position) >= 0.3f ? double{rounded} : 0.0)
                    << "element " << i << " of rows of " << columns;
            }
        }
    }
}

TEST(Dropout, KeepsTheShareAndTheMean) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector(std::vector<float>(100000, 1.0f), {10, 10000}, device);
    int num_dropped = 0;
    double sum = 0.0;
    for (const double value : ToDoubles(*dropout(kCpu, *x, 0.25f, kKey))) {
        num_dropped += value == 0.0 ? 1 : 0;
        sum += value;
    }
    // Four standard deviations: sqrt(100000 * 0.25 * 0.75) = 137.
    EXPECT_NEAR(num_dropped, 25000, 548);
    EXPECT_NEAR(sum / 100000.0, 1.0, 548.0 / 75000.0);
}

TEST(Dropout, DoesNotDependOnHowSamplesAreSplit) {
    const Device device = MakeCpuDevice();
    const auto x = RandomTensor({5, 3, 7}, DataType::kFloat32, device, 1);
    const auto whole = dropout(kCpu, *x, 0.5f, kKey);
    DropoutKey rest = kKey;
    rest.first_sample += 2;
    EXPECT_TRUE(SameBits(*dropout(kCpu, *x->Slice(0, 2), 0.5f, kKey), *whole->Slice(0, 2)));
    EXPECT_TRUE(SameBits(*dropout(kCpu, *x->Slice(2, 5), 0.5f, rest), *whole->Slice(2, 5)));
}

TEST(Dropout, DependsOnEveryPartOfTheKey) {
    const Device device = MakeCpuDevice();
    const auto x = RandomTensor({1, 64}, DataType::kFloat32, device, 1);
    const auto y = dropout(kCpu, *x, 0.5f, kKey);
    const auto differs = [&](auto change) {
        DropoutKey key = kKey;
        change(key);
        return !SameBits(*dropout(kCpu, *x, 0.5f, key), *y);
    };
    EXPECT_TRUE(differs([](DropoutKey& key) { ++key.seed; }));
    EXPECT_TRUE(differs([](DropoutKey& key) { ++key.step; }));
    EXPECT_TRUE(differs([](DropoutKey& key) { ++key.layer; }));
    EXPECT_TRUE(differs([](DropoutKey& key) { ++key.first_sample; }));
    EXPECT_TRUE(differs([](DropoutKey& key) { std::swap(key.step, key.layer); }));
}

TEST(Dropout, OfZeroIsTheIdentityAndOfNothingIsNothing) {
    const Device device = MakeCpuDevice();
    const auto x = RandomTensor({2, 33}, DataType::kBFloat16, device, 1);
    EXPECT_TRUE(SameBits(*dropout(kCpu, *x, 0.0f, kKey), *x));
    EXPECT_EQ(dropout(kCpu, *Tensor::Zeros({0, 4}, DataType::kFloat32, device), 0.5f, kKey)->shape(), (Shape{0, 4}));
    EXPECT_EQ(dropout(kCpu, *Tensor::Zeros({4, 0}, DataType::kFloat32, device), 0.5f, kKey)->shape(), (Shape{4, 0}));
}

TEST(Dropout, HasTheSameBitsOnOneAndThreeThreads) {
    const auto x = RandomTensor({3, 5001}, DataType::kFloat32, MakeCpuDevice(), 1);
    const auto run = [&](int num_threads) {
        const NumThreadsGuard threads(num_threads);
        return dropout(kCpu, *x, 0.1f, kKey);
    };
    EXPECT_TRUE(SameBits(*run(1), *run(3)));
}

TEST(DropoutDeathTest, RefusesAProbabilityOutsideItsRange) {
    const auto x = Tensor::Zeros({1, 1}, DataType::kFloat32, MakeCpuDevice());
    EXPECT_DEATH(dropout(kCpu, *x, 1.0f, kKey), "dropout: p 1");
    EXPECT_DEATH(dropout(kCpu, *x, -0.1f, kKey), "dropout: p -0.1");
    EXPECT_DEATH(dropout(kCpu, *x, std::nanf(""), kKey), "dropout: p nan");
}

}  // namespace
}  // namespace infini_train::kernels
