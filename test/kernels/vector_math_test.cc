#include "infini_train/src/kernels/cpu/vector_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Distance in units of the last place that `wanted` has as a float32, denormals included.
double UlpError(float got, double wanted) {
    const int exponent = std::max(std::ilogb(std::abs(wanted)), std::numeric_limits<float>::min_exponent - 1);
    return std::abs(double{got} - wanted) / std::ldexp(1.0, exponent - (std::numeric_limits<float>::digits - 1));
}

/// Floats of both signs over [smallest, largest], a few thousand in each factor of two.
std::vector<float> FloatsBetween(float smallest, float largest) {
    constexpr uint32_t kStride = 2039;  // a prime: all low bits occur
    std::vector<float> values;
    for (uint32_t bits = std::bit_cast<uint32_t>(smallest); bits <= std::bit_cast<uint32_t>(largest); bits += kStride) {
        values.push_back(std::bit_cast<float>(bits));
        values.push_back(-std::bit_cast<float>(bits));
    }
    return values;
}

TEST(Exp, IsWithinOneUnitInTheLastPlace) {
    double largest_error = 0.0;
    for (const float x : FloatsBetween(1e-9f, 104.0f)) {
        const double wanted = std::exp(double{x});
        if (wanted < 0x1p128 * (1.0 - 0x1p-25)) {
            largest_error = std::max(largest_error, UlpError(Exp(x), wanted));
        }
    }
    EXPECT_LE(largest_error, 1.0);
}

TEST(Exp, IsOneAtZero) {
    EXPECT_EQ(Exp(0.0f), 1.0f);
    EXPECT_EQ(Exp(-0.0f), 1.0f);
}

TEST(Exp, LeavesTheRangeOfFloatsAtBothEnds) {
    EXPECT_EQ(Exp(88.72f), static_cast<float>(std::exp(double{88.72f})));
    EXPECT_EQ(Exp(88.73f), kInfinity);
    EXPECT_EQ(Exp(1e30f), kInfinity);
    EXPECT_EQ(Exp(kInfinity), kInfinity);
    EXPECT_EQ(Exp(-103.9f), std::numeric_limits<float>::denorm_min());
    EXPECT_EQ(Exp(-104.0f), 0.0f);
    EXPECT_EQ(Exp(-1e30f), 0.0f);
    EXPECT_EQ(Exp(-kInfinity), 0.0f);
}

TEST(Exp, KeepsNaN) {
    EXPECT_TRUE(std::isnan(Exp(kNaN)));
    EXPECT_TRUE(std::isnan(Exp(-kNaN)));
}

TEST(Exp, HasTheSameBitsInAVectorAsAlone) {
    const std::vector<float> x = FloatsBetween(1e-6f, 110.0f);
    std::vector<float> y(x.size());
#pragma omp simd
    for (size_t i = 0; i < x.size(); ++i) {
        y[i] = Exp(x[i]);
    }
    for (size_t i = 0; i < x.size(); ++i) {
        volatile float alone = x[i];
        ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(Exp(alone))) << "x " << x[i];
    }
}

TEST(Sigmoid, IsAccurateOnBothSidesOfZero) {
    double largest_error = 0.0;
    for (const float x : FloatsBetween(1e-9f, 80.0f)) {
        const SigmoidPair pair = Sigmoid(x);
        largest_error = std::max(largest_error, UlpError(pair.value, 1.0 / (1.0 + std::exp(-double{x}))));
        largest_error = std::max(largest_error, UlpError(pair.complement, 1.0 / (1.0 + std::exp(double{x}))));
    }
    EXPECT_LE(largest_error, 3.0);
}

TEST(Sigmoid, SaturatesWithoutNaN) {
    EXPECT_EQ(Sigmoid(kInfinity).value, 1.0f);
    EXPECT_EQ(Sigmoid(kInfinity).complement, 0.0f);
    EXPECT_EQ(Sigmoid(-kInfinity).value, 0.0f);
    EXPECT_EQ(Sigmoid(-kInfinity).complement, 1.0f);
    EXPECT_EQ(Sigmoid(-1000.0f).value, 0.0f);
}

TEST(Sigmoid, KeepsNaN) {
    EXPECT_TRUE(std::isnan(Sigmoid(kNaN).value));
    EXPECT_TRUE(std::isnan(Sigmoid(kNaN).complement));
}

TEST(Store, RoundsToTheElement) {
    float wide = 0.0f;
    BFloat16 narrow;
    Store(1.00390625f, wide);
    Store(1.00390625f, narrow);  // halfway between 1 and the next bfloat16: to even
    EXPECT_EQ(wide, 1.00390625f);
    EXPECT_EQ(static_cast<float>(narrow), 1.0f);
    Store(kNaN, narrow);
    EXPECT_TRUE(std::isnan(static_cast<float>(narrow)));
}

}  // namespace
}  // namespace infini_train::kernels::cpu
