#include "infini_train/include/nn/modules/attention.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/nn/state_dict.h"

namespace infini_train::nn {
namespace {

TEST(RotaryAngles, AreTheCosineAndSineOfPositionTimesFrequency) {
    const auto angles = MakeRotaryAngles({.head_dim = 4, .max_positions = 3, .theta = 100.0f}, MakeCpuDevice());
    ASSERT_EQ(angles->shape(), (Shape{3, 2, 2}));
    const std::vector<float> values = angles->ToVector<float>();
    EXPECT_EQ(values[0], 1.0f);
    EXPECT_EQ(values[1], 0.0f);
    EXPECT_NEAR(values[2 * 4 + 0], std::cos(2.0), 1e-6);
    EXPECT_NEAR(values[2 * 4 + 2], std::cos(0.2), 1e-6);  // frequency 100^(-2/4)
    EXPECT_NEAR(values[2 * 4 + 3], std::sin(0.2), 1e-6);
}

// Wave lengths 2 pi theta^(2 j / D) of 6.28, 62.8, 628, 6283 against an original context of 1000 with factors 1 and 4:
// those below 250 stay, those above 1000 are divided by the factor, and 628 is interpolated with weight (1000 / 628.3 -
// 1) / 3.
TEST(RotaryAngles, StretchLongWavesOnly) {
    const RotaryOptions options = {
        .head_dim = 8, .max_positions = 2, .theta = 10000.0f, .scaling_factor = 8.0f, .original_positions = 1000};
    const std::vector<float> values = MakeRotaryAngles(options, MakeCpuDevice())->ToVector<float>();
    const size_t position1 = 8;
    EXPECT_NEAR(values[position1 + 1], std::sin(1.0), 1e-6);
    EXPECT_NEAR(values[position1 + 3], std::sin(0.1), 1e-6);
    const double smooth = (1000.0 / (2 * M_PI * 100.0) - 1.0) / 3.0;
    EXPECT_NEAR(values[position1 + 5], std::sin((1 - smooth) * 0.01 / 8 + smooth * 0.01), 1e-8);
    EXPECT_NEAR(values[position1 + 7], std::sin(0.001 / 8), 1e-9);
}

TEST(CausalSelfAttention, DoesNotLookAhead) {
    const Device device = MakeCpuDevice();
    CausalSelfAttention attention({.dim = 8, .num_heads = 4, .num_kv_heads = 2}, device);
    attention.Initialize(5);
    EXPECT_EQ(StateDict(attention).at("c_attn.weight")->shape(), (Shape{16, 8}));
    std::vector<float> values(3 * 8);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i));
    }
    const std::vector<float> before =
        attention.Forward({Tensor::FromVector(values, {1, 3, 8}, device)})[0]->ToVector<float>();
    values[2 * 8] += 1.0f;  // the last position
    const std::vector<float> after =
        attention.Forward({Tensor::FromVector(values, {1, 3, 8}, device)})[0]->ToVector<float>();
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 16, after.begin()));
    EXPECT_NE(before[16], after[16]);
}

}  // namespace
}  // namespace infini_train::nn
