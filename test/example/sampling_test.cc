#include "example/common/sampling.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace infini_train {
namespace {

/// Probabilities 0.1, 0.4, 0.2, 0.3 at temperature 1.
std::vector<float> Logits() {
    std::vector<float> logits;
    for (const double probability : {0.1, 0.4, 0.2, 0.3}) {
        logits.push_back(static_cast<float>(std::log(probability)) + 5.0f);
    }
    return logits;
}

/// The share of each token, over 10000 values of uniform.
std::vector<double> Shares(const std::vector<float>& logits, const SamplingOptions& options) {
    constexpr int kValues = 10000;
    std::vector<double> shares(logits.size(), 0.0);
    for (int i = 0; i < kValues; ++i) {
        shares.at(static_cast<size_t>(SampleToken(logits, options, (i + 0.5) / kValues))) += 1.0 / kValues;
    }
    return shares;
}

void ExpectShares(const SamplingOptions& options, const std::vector<double>& wanted) {
    const std::vector<double> shares = Shares(Logits(), options);
    for (size_t token = 0; token < wanted.size(); ++token) {
        EXPECT_NEAR(shares[token], wanted[token], 2e-4) << "token " << token;
        EXPECT_EQ(shares[token] == 0.0, wanted[token] == 0.0) << "token " << token;
    }
}

TEST(SampleToken, TakesEachTokenWithItsProbability) {
    ExpectShares({}, {0.1, 0.4, 0.2, 0.3});
    // In the order of the ids.
    EXPECT_EQ(SampleToken(Logits(), {}, 0.0), 0);
    EXPECT_EQ(SampleToken(Logits(), {}, 0.0999), 0);
    EXPECT_EQ(SampleToken(Logits(), {}, 0.1001), 1);
    EXPECT_EQ(SampleToken(Logits(), {}, 0.6999), 2);
    EXPECT_EQ(SampleToken(Logits(), {}, 0.7001), 3);
    EXPECT_EQ(SampleToken(Logits(), {}, 1.0 - 0x1.0p-53), 3);
}

TEST(SampleToken, SquaresProbabilitiesAtHalfTheTemperature) {
    ExpectShares({.temperature = 0.5f}, {0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3});
}

TEST(SampleToken, TakesTheLikeliestAtTemperatureZeroOfEqualsTheFirst) {
    const SamplingOptions greedy = {.temperature = 0.0f};
    EXPECT_EQ(SampleToken(Logits(), greedy, 0.99), 1);
    EXPECT_EQ(SampleToken(std::vector<float>{-2.0f, -1.0f, -1.0f, -3.0f}, greedy, 0.99), 1);
}

TEST(SampleToken, TakesTheLikeliestAtATinyTemperature) {
    for (const float temperature : {1e-3f, 1e-30f, 1e-45f}) {
        EXPECT_EQ(SampleToken(Logits(), {.temperature = temperature}, 0.999), 1) << temperature;
        EXPECT_EQ(SampleToken(Logits(), {.temperature = temperature}, 0.0), 1) << temperature;
    }
}

TEST(SampleToken, TakesAllAlikeAtAHugeTemperature) {
    ExpectShares({.temperature = 1e30f}, {0.25, 0.25, 0.25, 0.25});
}

TEST(SampleToken, KeepsTheTopK) {
    ExpectShares({.top_k = 1}, {0, 1, 0, 0});
    ExpectShares({.top_k = 2}, {0, 4.0 / 7, 0, 3.0 / 7});
    ExpectShares({.top_k = 3}, {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
    ExpectShares({.top_k = 4}, {0.1, 0.4, 0.2, 0.3});
    ExpectShares({.top_k = 2000000000}, {0.1, 0.4, 0.2, 0.3});
    // Of equals the first.
    const std::vector<double> shares = Shares({1.0f, 2.0f, 2.0f, 2.0f, 1.0f}, {.top_k = 2});
    EXPECT_NEAR(shares[1], 0.5, 2e-4);
    EXPECT_NEAR(shares[2], 0.5, 2e-4);
}

TEST(SampleToken, KeepsTheTopP) {
    ExpectShares({.top_p = 0.0f}, {0, 1, 0, 0});
    ExpectShares({.top_p = 0.39f}, {0, 1, 0, 0});
    ExpectShares({.top_p = 0.41f}, {0, 4.0 / 7, 0, 3.0 / 7});
    ExpectShares({.top_p = 0.89f}, {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
    ExpectShares({.top_p = 0.91f}, {0.1, 0.4, 0.2, 0.3});
    ExpectShares({.top_p = 1.0f}, {0.1, 0.4, 0.2, 0.3});
}

TEST(SampleToken, TakesTopPOfWhatTopKLeaves) {
    // Of 0.4, 0.3 and 0.2 the first two have 7 / 9.
    ExpectShares({.top_k = 3, .top_p = 0.77f}, {0, 4.0 / 7, 0, 3.0 / 7});
    ExpectShares({.top_k = 3, .top_p = 0.79f}, {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
    // And of probabilities at the temperature: 16 / 29 and 9 / 29.
    ExpectShares({.temperature = 0.5f, .top_k = 3, .top_p = 0.56f}, {0, 16.0 / 25, 0, 9.0 / 25});
    ExpectShares({.temperature = 0.5f, .top_k = 3, .top_p = 0.54f}, {0, 1, 0, 0});
}

TEST(SampleToken, TakesWhatIsKeptInTheOrderOfTheIds) {
    // Tokens 1, 2 and 3, whose running sums are 4 / 9, 6 / 9 and 1.
    for (const SamplingOptions& options : {SamplingOptions{.top_k = 3}, {.top_p = 0.89f}}) {
        EXPECT_EQ(SampleToken(Logits(), options, 0.44), 1);
        EXPECT_EQ(SampleToken(Logits(), options, 0.45), 2);
        EXPECT_EQ(SampleToken(Logits(), options, 0.66), 2);
        EXPECT_EQ(SampleToken(Logits(), options, 0.67), 3);
    }
}

TEST(SampleToken, NeverTakesATokenOfProbabilityZero) {
    const std::vector<float> logits = {0.0f, -1e30f, 3.0f, -1e30f};
    for (const double uniform : {0.0, 0.5, 1.0 - 0x1.0p-53}) {
        EXPECT_EQ(SampleToken(logits, {}, uniform) % 2, 0) << uniform;
        EXPECT_EQ(SampleToken(logits, {.top_k = 3, .top_p = 0.9999f}, uniform) % 2, 0) << uniform;
    }
}

TEST(SampleToken, ChoosesFromOne) {
    EXPECT_EQ(SampleToken(std::array<float, 1>{-7.0f}, {.temperature = 2.0f, .top_k = 5, .top_p = 0.3f}, 0.9), 0);
}

}  // namespace
}  // namespace infini_train
