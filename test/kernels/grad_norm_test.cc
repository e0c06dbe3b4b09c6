#include "infini_train/include/kernels/grad_norm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
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

class GradNorm : public testing::Test {
 protected:
    TensorList MakeGrads() const {
        TensorList grads;
        // Odd sizes, one more than the lanes and than a block of the CPU kernel, and enough for several threads.
        for (const int64_t size : {0, 1, 7, 33, 32769, 100000, 2}) {
            grads.push_back(RandomTensor({size}, DataType::kFloat32, device_, static_cast<uint64_t>(size), 3.0f));
        }
        return grads;
    }

    std::shared_ptr<Tensor> Sums(const TensorList& grads) const {
        std::vector<const Tensor*> list;
        for (const std::shared_ptr<Tensor>& grad : grads) {
            list.push_back(grad.get());
        }
        auto sums = Tensor::Zeros({static_cast<int64_t>(grads.size())}, DataType::kFloat32, device_);
        squared_sums(kCpu, list, *sums);
        return sums;
    }

    struct NormAndScale {
        float norm = 0.0f;
        float scale = 0.0f;
    };
    NormAndScale Scale(const std::vector<float>& sums, int64_t num_valid, float max_norm) const {
        const auto [norm, scale] =
            grad_scale(kCpu, *Tensor::FromVector(sums, {static_cast<int64_t>(sums.size())}, device_),
                       *Tensor::FromVector(std::vector<int64_t>{num_valid}, {1}, device_), max_norm);
        return {.norm = norm->ToVector<float>()[0], .scale = scale->ToVector<float>()[0]};
    }

    Device device_ = MakeCpuDevice();
};

TEST_F(GradNorm, SumsTheSquaresOfEachGradient) {
    const TensorList grads = {Tensor::FromVector(std::vector<float>{3.0f, -4.0f}, {2}, device_),
                              Tensor::FromVector(std::vector<float>{}, {0}, device_),
                              Tensor::FromVector(std::vector<float>{0.5f}, {1, 1}, device_)};
    EXPECT_EQ(Sums(grads)->ToVector<float>(), (std::vector<float>{25.0f, 0.0f, 0.25f}));
}

TEST_F(GradNorm, MatchesASumInDouble) {
    const TensorList grads = MakeGrads();
    const std::vector<float> sums = Sums(grads)->ToVector<float>();
    for (size_t i = 0; i < grads.size(); ++i) {
        double wanted = 0.0;
        for (const double value : ToDoubles(*grads[i])) {
            wanted += value * value;
        }
        EXPECT_NEAR(sums[i], wanted, 6e-8 * wanted) << i;  // rounded once, from double
    }
}

TEST_F(GradNorm, DoesNotLoseSmallElementsBesideALargeOne) {
    std::vector<float> values(1 << 17, 1.0f);
    values[0] = 5000.0f;  // in float32 ones would vanish beside its square
    const std::shared_ptr<Tensor> grad = Tensor::FromVector(values, {1 << 17}, device_);
    EXPECT_EQ(Sums({grad})->ToVector<float>()[0], 25.0e6f + static_cast<float>((1 << 17) - 1));
}

TEST_F(GradNorm, GivesTheSameBitsWithAnyNumberOfThreads) {
    const TensorList grads = MakeGrads();
    const auto run = [&](int num_threads) {
        const NumThreadsGuard guard(num_threads);
        return Sums(grads);
    };
    const std::shared_ptr<Tensor> one = run(1);
    for (const int num_threads : {2, 3}) {
        EXPECT_TRUE(SameBits(*one, *run(num_threads))) << num_threads;
    }
}

TEST_F(GradNorm, SumsAGradientAlikeInAnyCompany) {
    const TensorList grads = MakeGrads();
    const std::vector<float> together = Sums(grads)->ToVector<float>();
    for (size_t i = 0; i < grads.size(); ++i) {
        EXPECT_EQ(Sums({grads[i]})->ToVector<float>()[0], together[i]) << i;
    }
}

TEST_F(GradNorm, DividesTheNormByTheNumberOfTargets) {
    const NormAndScale result = Scale({9.0f, 16.0f}, 10, 0.0f);
    EXPECT_FLOAT_EQ(result.norm, 0.5f);
    EXPECT_FLOAT_EQ(result.scale, 0.1f);
}

TEST_F(GradNorm, ClipsOnlyWhatIsAboveTheLimit) {
    EXPECT_FLOAT_EQ(Scale({9.0f, 16.0f}, 10, 0.25f).scale, static_cast<float>(0.25 / (0.5 + 1e-6) / 10));
    EXPECT_FLOAT_EQ(Scale({9.0f, 16.0f}, 10, 0.25f).norm, 0.5f);
    EXPECT_FLOAT_EQ(Scale({9.0f, 16.0f}, 10, 0.75f).scale, 0.1f);
    EXPECT_FLOAT_EQ(Scale({}, 4, 1.0f).scale, 0.25f);
}

TEST_F(GradNorm, IsZeroWithoutTargets) {
    for (const float max_norm : {0.0f, 1.0f}) {
        EXPECT_EQ(Scale({9.0f, 16.0f}, 0, max_norm).norm, 0.0f);
        EXPECT_EQ(Scale({9.0f, 16.0f}, 0, max_norm).scale, 0.0f);
    }
}

TEST_F(GradNorm, ShowsGradientsThatAreNotFinite) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const std::vector<float> sums =
            Sums({Tensor::FromVector(std::vector<float>{1.0f, bad}, {2}, device_)})->ToVector<float>();
        for (const float max_norm : {0.0f, 1.0f}) {
            EXPECT_FALSE(std::isfinite(Scale(sums, 4, max_norm).norm));
            EXPECT_TRUE(std::isnan(Scale(sums, 4, max_norm).scale)) << bad << " " << max_norm;
        }
    }
}

using GradNormDeathTest = GradNorm;

TEST_F(GradNormDeathTest, RefusesTensorsThatDoNotFit) {
    const std::shared_ptr<Tensor> values = Tensor::Zeros({2}, DataType::kBFloat16, device_);
    const std::shared_ptr<Tensor> sums = Tensor::Zeros({2}, DataType::kFloat32, device_);
    EXPECT_DEATH(Sums({values}), "squared_sums: a gradient \\[2\\] bfloat16");
    EXPECT_DEATH(squared_sums(kCpu, {}, *sums), "squared_sums: \\[2\\] float32 for 0 gradients");
    EXPECT_DEATH(grad_scale(kCpu, *sums, *sums, 0.0f), "num_valid \\[2\\] float32");
    EXPECT_DEATH(Scale({1.0f}, 1, -1.0f), "max_norm");
    EXPECT_DEATH(Scale({1.0f}, -1, 0.0f), "num_valid");
}

}  // namespace
}  // namespace infini_train::kernels
