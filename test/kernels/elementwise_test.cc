#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/kernels/accumulate.h"
#include "infini_train/include/kernels/add.h"
#include "infini_train/include/kernels/cast.h"
#include "infini_train/include/kernels/fill.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::RandomTensor;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Nothing, one, less than a vector, one more than several vectors, and enough for several threads. Each element is
/// computed alone: the number of threads has no sum to change.
class Elementwise : public testing::TestWithParam<std::tuple<DataType, int64_t>> {
 protected:
    std::shared_ptr<Tensor> Random(uint64_t seed) {
        return RandomTensor({std::get<1>(GetParam())}, dtype(), device_, seed);
    }
    DataType dtype() const { return std::get<0>(GetParam()); }

    Device device_ = MakeCpuDevice();
};

TEST_P(Elementwise, AddRoundsTheSumOnce) {
    const auto a = Random(1);
    const auto b = Random(2);
    const auto y = add(kCpu, *a, *b);
    ASSERT_EQ(y->dtype(), dtype());
    ASSERT_EQ(y->shape(), a->shape());
    const std::vector<double> a_values = ToDoubles(*a);
    const std::vector<double> b_values = ToDoubles(*b);
    const std::vector<double> values = ToDoubles(*y);
    for (size_t i = 0; i < values.size(); ++i) {
        const float sum = static_cast<float>(a_values[i]) + static_cast<float>(b_values[i]);
        ASSERT_EQ(values[i], double{dtype() == DataType::kBFloat16 ? static_cast<float>(BFloat16(sum)) : sum}) << i;
    }
}

TEST_P(Elementwise, AccumulateAddsOrWrites) {
    const auto x = Random(1);
    const auto sum = RandomTensor(x->shape(), DataType::kFloat32, device_, 2);
    const std::vector<double> x_values = ToDoubles(*x);
    std::vector<float> wanted = sum->ToVector<float>();
    for (size_t i = 0; i < wanted.size(); ++i) {
        wanted[i] += static_cast<float>(x_values[i]);
    }
    accumulate(kCpu, *x, *sum, true);
    EXPECT_EQ(sum->ToVector<float>(), wanted);
    fill(kCpu, *sum, kNaN);
    accumulate(kCpu, *x, *sum, false);
    EXPECT_EQ(ToDoubles(*sum), x_values);
}

TEST_P(Elementwise, CastConvertsToAndFromBothDtypes) {
    const auto x = Random(1);
    const auto wide = Tensor::Zeros(x->shape(), DataType::kFloat32, device_);
    const auto narrow = Tensor::Zeros(x->shape(), DataType::kBFloat16, device_);
    cast(kCpu, *x, *wide);
    cast(kCpu, *x, *narrow);
    EXPECT_EQ(ToDoubles(*wide), ToDoubles(*x));
    std::vector<double> rounded = ToDoubles(*x);
    for (double& value : rounded) {
        value = static_cast<float>(BFloat16(static_cast<float>(value)));
    }
    EXPECT_EQ(ToDoubles(*narrow), rounded);
}

TEST_P(Elementwise, FillSetsEveryElement) {
    const auto x = Random(1);
    fill(kCpu, *x, -1.5f);
    EXPECT_EQ(ToDoubles(*x), std::vector<double>(static_cast<size_t>(x->num_elements()), -1.5));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Elementwise,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::Values(0, 1, 7, 65, 40001)));

TEST(Cast, KeepsNaNAndInfinity) {
    const Device device = MakeCpuDevice();
    const float infinity = std::numeric_limits<float>::infinity();
    const auto x = Tensor::FromVector<float>({kNaN, infinity, -infinity, 3.4e38f}, {4}, device);
    const auto y = Tensor::Zeros({4}, DataType::kBFloat16, device);
    cast(kCpu, *x, *y);
    const std::vector<double> values = ToDoubles(*y);
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ(values[1], double{infinity});
    EXPECT_EQ(values[2], -double{infinity});
    EXPECT_EQ(values[3], double{infinity}) << "rounds up past the largest bfloat16";
}

TEST(ElementwiseDeathTest, RefusesOperandsOfAnotherShapeOrDtype) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::Zeros({2, 3}, DataType::kFloat32, device);
    const auto turned = Tensor::Zeros({3, 2}, DataType::kFloat32, device);
    const auto narrow = Tensor::Zeros({2, 3}, DataType::kBFloat16, device);
    const auto ids = Tensor::Zeros({2, 3}, DataType::kInt32, device);
    EXPECT_DEATH(add(kCpu, *x, *turned), "add: a \\[2, 3\\].*b \\[3, 2\\]");
    EXPECT_DEATH(add(kCpu, *x, *narrow), "add: .*float32.*bfloat16");
    EXPECT_DEATH(add(kCpu, *ids, *ids), "int32");
    EXPECT_DEATH(accumulate(kCpu, *x, *turned, false), "accumulate: x \\[2, 3\\].*\\[3, 2\\]");
    EXPECT_DEATH(accumulate(kCpu, *x, *narrow, false), "accumulate: .*bfloat16");
    EXPECT_DEATH(cast(kCpu, *x, *turned), "cast: x \\[2, 3\\].*\\[3, 2\\]");
    EXPECT_DEATH(cast(kCpu, *x, *ids), "int32");
    EXPECT_DEATH(fill(kCpu, *ids, 1.0f), "int32");
}

}  // namespace
}  // namespace infini_train::kernels
