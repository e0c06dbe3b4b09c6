#include "infini_train/include/core/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace infini_train {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, HasTheKnownAnswers) {
    // kat_vectors of Random123, "philox4x32 10".
    EXPECT_EQ(Philox({.seed = 0, .stream = 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(Philox({.seed = UINT64_MAX, .stream = UINT64_MAX}, UINT64_MAX),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(Philox({.seed = 0x299f31d0a4093822, .stream = 0x0370734413198a2e}, 0x85a308d3243f6a88),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, IsAtLeastZeroAndLessThanOne) {
    EXPECT_EQ(UniformFromBits(0), 0.0f);
    EXPECT_EQ(UniformFromBits(0xff), 0.0f);
    EXPECT_EQ(UniformFromBits(0x80000000u), 0.5f);
    EXPECT_EQ(UniformFromBits(UINT32_MAX), 1.0f - 0x1.0p-24f);
}

TEST(Uniform, DependsOnPositionAlone) {
    const RandomStream random = {.seed = 1, .stream = 2};
    for (const uint64_t index : {uint64_t{0}, uint64_t{7}, uint64_t{123456789012}}) {
        EXPECT_EQ(Uniform(random, index), UniformFromBits(Philox(random, index / 4)[index % 4]));
    }
    EXPECT_NE(Uniform({.seed = 2, .stream = 2}, 7), Uniform(random, 7));
    EXPECT_NE(Uniform({.seed = 1, .stream = 3}, 7), Uniform(random, 7));
}

TEST(Uniform, FillsItsRangeEvenly) {
    // Chi squared over 16 bins: mean 15, standard deviation sqrt(30).
    constexpr uint64_t kCount = 160000;
    std::array<int, 16> bins{};
    for (uint64_t i = 0; i < kCount; ++i) {
        ++bins[static_cast<size_t>(Uniform({.seed = 5, .stream = 6}, i) * 16.0f)];
    }
    double chi_squared = 0.0;
    for (const int bin : bins) {
        chi_squared += std::pow(bin - 10000.0, 2) / 10000.0;
    }
    EXPECT_LT(chi_squared, 15.0 + 4.0 * std::sqrt(30.0));
}

TEST(Normal, HasTheMomentsOfTheNormalDistribution) {
    constexpr uint64_t kCount = 200000;
    double sum = 0.0;
    double squares = 0.0;
    double fourth = 0.0;
    double neighbours = 0.0;
    double before = 0.0;
    for (uint64_t i = 0; i < kCount; ++i) {
        const double value = Normal({.seed = 42, .stream = StreamOf("weight")}, i);
        sum += value;
        squares += value * value;
        fourth += std::pow(value, 4);
        neighbours += value * before;
        before = value;
    }
    // Four standard deviations of each estimate: 1, sqrt(2), sqrt(96) and 1, over sqrt(count).
    const double deviation = 4.0 / std::sqrt(double{kCount});
    EXPECT_NEAR(sum / double{kCount}, 0.0, deviation);
    EXPECT_NEAR(squares / double{kCount}, 1.0, deviation * std::sqrt(2.0));
    EXPECT_NEAR(fourth / double{kCount}, 3.0, deviation * std::sqrt(96.0));
    EXPECT_NEAR(neighbours / double{kCount}, 0.0, deviation);
}

TEST(Normal, DependsOnPositionAlone) {
    const RandomStream random = {.seed = 1, .stream = 2};
    std::vector<double> forwards;
    std::vector<double> backwards;
    for (uint64_t i = 0; i < 20; ++i) {
        forwards.push_back(Normal(random, i));
        backwards.push_back(Normal(random, 19 - i));
    }
    std::reverse(backwards.begin(), backwards.end());
    EXPECT_EQ(forwards, backwards);
    EXPECT_EQ(std::set<double>(forwards.begin(), forwards.end()).size(), 20u);
    EXPECT_NE(Normal({.seed = 1, .stream = 3}, 0), forwards[0]);
}

TEST(StreamOf, IsFnv1a) {
    EXPECT_EQ(StreamOf(""), 0xcbf29ce484222325u);
    EXPECT_EQ(StreamOf("a"), 0xaf63dc4c8601ec8cu);
    EXPECT_EQ(StreamOf("foobar"), 0x85944171f73967e8u);
}

TEST(Combine, TellsPartsAndTheirOrderApart) {
    std::set<uint64_t> streams;
    for (uint64_t step = 0; step < 10; ++step) {
        for (uint64_t layer = 0; layer < 10; ++layer) {
            for (uint64_t sample = 0; sample < 10; ++sample) {
                streams.insert(Combine(Combine(step, layer), sample));
            }
        }
    }
    EXPECT_EQ(streams.size(), 1000u);
    // SplitMix64 from the state 0 begins with this number.
    EXPECT_EQ(Combine(0, 0), 0xe220a8397b1dcdafu);
}

}  // namespace
}  // namespace infini_train
