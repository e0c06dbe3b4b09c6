#include "infini_train/include/nn/parallel/pp/stage_layout.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

namespace infini_train::nn::parallel {
namespace {

std::vector<int> SizesOf(const StageLayout& layout) {
    std::vector<int> sizes;
    for (const LayerRange& stage : layout) {
        sizes.push_back(stage.size());
    }
    return sizes;
}

/// All layers in order, each once, no stage without; the first and the last stage know that they are.
void ExpectCovers(const StageLayout& layout, int num_layers, int num_stages) {
    ASSERT_EQ(layout.size(), static_cast<size_t>(num_stages));
    int next = 0;
    for (const LayerRange& stage : layout) {
        EXPECT_EQ(stage.begin, next);
        EXPECT_GT(stage.size(), 0);
        EXPECT_EQ(stage.num_layers, num_layers);
        EXPECT_EQ(stage.is_first(), &stage == &layout.front());
        EXPECT_EQ(stage.is_last(), &stage == &layout.back());
        next = stage.end;
    }
    EXPECT_EQ(next, num_layers);
}

std::string MessageOf(const std::function<void()>& run) {
    try {
        run();
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), 2);
        return error.what();
    }
    return "no Error";
}

// bugs.csv O04, O05, O06, O09: layers that no stage has, or stages without layers.
TEST(EvenLayout, GivesEveryLayerToOneStageAndSizesThatDifferByOneAtMost) {
    for (int num_layers = 1; num_layers <= 40; ++num_layers) {
        for (int num_stages = 1; num_stages <= num_layers; ++num_stages) {
            const StageLayout layout = EvenLayout(num_layers, num_stages);
            ExpectCovers(layout, num_layers, num_stages);
            const std::vector<int> sizes = SizesOf(layout);
            EXPECT_LE(sizes.front() - sizes.back(), 1);
            EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend())) << ToString(layout);
        }
    }
}

TEST(EvenLayout, IsTheOneThatIsWrittenDown) {
    EXPECT_EQ(ToString(EvenLayout(5, 2)), "3,2");                   // bugs.csv O04
    EXPECT_EQ(ToString(EvenLayout(30, 4)), "8,8,7,7");              // bugs.csv O04
    EXPECT_EQ(ToString(EvenLayout(7, 3)), "3,2,2");                 // bugs.csv O05
    EXPECT_EQ(ToString(EvenLayout(10, 3)), "4,3,3");                // bugs.csv O06
    EXPECT_EQ(ToString(EvenLayout(10, 4)), "3,3,2,2");              // bugs.csv O07: 2 ranks with 2 chunks each
    EXPECT_EQ(ToString(EvenLayout(40, 16)).substr(0, 5), "3,3,3");  // bugs.csv O07: 8 ranks with 2 chunks each
    EXPECT_EQ(ToString(EvenLayout(5, 4)), "2,1,1,1");               // bugs.csv O09
    EXPECT_EQ(ToString(EvenLayout(3, 1)), "3");
}

// bugs.csv O08
TEST(EvenLayout, RefusesMoreStagesThanLayers) {
    const std::string wanted =
        "--pipeline_parallel: more stages than layers (got P x V = 4 stages for 2 layers, wanted at most 2)";
    EXPECT_EQ(MessageOf([] { EvenLayout(2, 4); }), wanted);
    EXPECT_EQ(MessageOf([] { BalancedLayout(2, 4, {}); }), wanted);
    for (int num_layers = 0; num_layers <= 8; ++num_layers) {
        EXPECT_NE(MessageOf([&] { EvenLayout(num_layers, num_layers + 1); }), "no Error");
    }
}

TEST(ParseLayout, ReadsTheSizeOfEachStage) {
    const StageLayout layout = ParseLayout("3,1,12", 16, 3);
    ExpectCovers(layout, 16, 3);
    EXPECT_EQ(SizesOf(layout), (std::vector<int>{3, 1, 12}));
    EXPECT_EQ(ToString(layout), "3,1,12");
    EXPECT_EQ(SizesOf(ParseLayout("7", 7, 1)), (std::vector<int>{7}));
}

TEST(ParseLayout, ReadsWhatToStringWrites) {
    for (int num_stages = 1; num_stages <= 13; ++num_stages) {
        const StageLayout layout = EvenLayout(13, num_stages);
        EXPECT_EQ(SizesOf(ParseLayout(ToString(layout), 13, num_stages)), SizesOf(layout));
    }
}

TEST(ParseLayout, RefusesWhatIsNoListOfPositiveNumbers) {
    const std::string nul("2,2\0,1", 6);
    for (const std::string& text : {std::string(),
                                    std::string(","),
                                    std::string("2,,3"),
                                    std::string(",5"),
                                    std::string("2,3,"),
                                    std::string(" 2,3"),
                                    std::string("2, 3"),
                                    std::string("2,3 "),
                                    std::string("2,3\n"),
                                    std::string("+2,3"),
                                    std::string("-2,7"),
                                    std::string("0,5"),
                                    std::string("5,0"),
                                    std::string("2.0,3"),
                                    std::string("2;3"),
                                    std::string("0x2,3"),
                                    std::string("two,3"),
                                    std::string("2,2147483648"),
                                    std::string("4294967298,3"),
                                    std::string("18446744073709551618,3"),
                                    std::string("99999999999999999999999,3"),
                                    nul}) {
        const std::string message = MessageOf([&] { ParseLayout(text, 5, 2); });
        EXPECT_EQ(message.find("--pipeline_layout: not the number of layers of each stage (got '"), 0u)
            << text << ": " << message;
        EXPECT_NE(message.find("wanted 2 positive numbers with commas between them and the sum 5"), std::string::npos)
            << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << "a message is one line";
    }
}

// bugs.csv O04, O06: a layout by hand that forgets a layer, or has one too many.
TEST(ParseLayout, RefusesAnotherCountOrSum) {
    for (const std::string text : {"5", "1,1,3", "2,2", "3,3", "1,2147483647", "2147483647,2147483647"}) {
        EXPECT_EQ(MessageOf([&] { ParseLayout(text, 5, 2); }).find("--pipeline_layout: "), 0u) << text;
    }
    EXPECT_EQ(MessageOf([] { ParseLayout("3,4,4", 10, 4); }),
              "--pipeline_layout: not the number of layers of each stage (got '3,4,4': 3 with the sum 11, wanted 4 "
              "positive numbers with commas between them and the sum 10)");
    // 2^32 + 5 in all: a sum in 32 bits would be right.
    EXPECT_NE(MessageOf([] { ParseLayout("2147483647,2147483647,7", 5, 3); }), "no Error");
}

/// Times of the stages, the slowest first.
std::vector<double> TimesOf(const std::vector<int>& sizes, const LayerCosts& costs) {
    std::vector<double> times;
    for (size_t stage = 0; stage < sizes.size(); ++stage) {
        times.push_back(sizes[stage] * costs.layer + (stage == 0 ? costs.embedding : 0.0) +
                        (stage + 1 == sizes.size() ? costs.head : 0.0));
    }
    std::sort(times.rbegin(), times.rend());
    return times;
}

/// Tries every way to cut num_layers into the stages that are left, and keeps the best in `best`.
void TryAll(int num_layers, int num_stages, const LayerCosts& costs, std::vector<int>& sizes, std::vector<int>& best) {
    if (num_stages == 1) {
        sizes.push_back(num_layers);
        const auto is_better = [&] {
            const std::vector<double> times = TimesOf(sizes, costs);
            const std::vector<double> best_times = TimesOf(best, costs);
            return times < best_times || (times == best_times && sizes > best);
        };
        if (best.empty() || is_better()) {
            best = sizes;
        }
        sizes.pop_back();
        return;
    }
    for (int size = 1; size <= num_layers - num_stages + 1; ++size) {
        sizes.push_back(size);
        TryAll(num_layers - size, num_stages - 1, costs, sizes, best);
        sizes.pop_back();
    }
}

// Costs are sums of powers of two, so that times are exact and ties are ties.
TEST(BalancedLayout, IsTheBestOfAllLayouts) {
    for (const double embedding : {0.0, 0.25, 1.0, 2.5}) {
        for (const double head : {0.0, 0.75, 1.0, 4.25, 5.5, 30.0}) {
            for (const double layer : {1.0, 0.375}) {
                const LayerCosts costs = {.embedding = embedding, .layer = layer, .head = head};
                for (int num_layers = 1; num_layers <= 12; ++num_layers) {
                    for (int num_stages = 1; num_stages <= num_layers; ++num_stages) {
                        std::vector<int> sizes;
                        std::vector<int> best;
                        TryAll(num_layers, num_stages, costs, sizes, best);
                        const StageLayout layout = BalancedLayout(num_layers, num_stages, costs);
                        ExpectCovers(layout, num_layers, num_stages);
                        ASSERT_EQ(SizesOf(layout), best)
                            << "costs " << embedding << ", " << layer << ", " << head << " of " << num_layers;
                    }
                }
            }
        }
    }
}

TEST(BalancedLayout, HasTheFastestSlowestStageForMeasuredCosts) {
    const LayerCosts costs = {.embedding = 0.0371, .layer = 0.3127, .head = 1.3441};
    for (int num_layers = 1; num_layers <= 11; ++num_layers) {
        for (int num_stages = 1; num_stages <= num_layers; ++num_stages) {
            std::vector<int> sizes;
            std::vector<int> best;
            TryAll(num_layers, num_stages, costs, sizes, best);
            EXPECT_EQ(TimesOf(SizesOf(BalancedLayout(num_layers, num_stages, costs)), costs)[0],
                      TimesOf(best, costs)[0]);
        }
    }
}

// bugs.csv O09: five equal layers over four stages left one of them empty.
TEST(BalancedLayout, IsEvenWithoutCostsOfEmbeddingAndHead) {
    EXPECT_EQ(ToString(BalancedLayout(5, 4, {})), "2,1,1,1");
    for (int num_layers = 1; num_layers <= 40; ++num_layers) {
        for (int num_stages = 1; num_stages <= num_layers; ++num_stages) {
            EXPECT_EQ(SizesOf(BalancedLayout(num_layers, num_stages, {})), SizesOf(EvenLayout(num_layers, num_stages)));
        }
    }
}

TEST(BalancedLayout, GivesTheStageWithTheHeadFewerLayers) {
    const LayerCosts llama_1b = {.head = 4.3};
    EXPECT_EQ(ToString(BalancedLayout(16, 2, llama_1b)), "10,6");     // 10 and 10.3, even 8 and 12.3
    EXPECT_EQ(ToString(BalancedLayout(16, 4, llama_1b)), "5,5,5,1");  // 5.3, even 8.3
    const LayerCosts gpt2_124m = {.head = 5.5};
    EXPECT_EQ(ToString(BalancedLayout(12, 2, gpt2_124m)), "9,3");      // 9 and 8.5, even 6 and 11.5
    EXPECT_EQ(ToString(BalancedLayout(12, 4, gpt2_124m)), "4,4,3,1");  // the head's stage is the slowest as it is
    EXPECT_EQ(ToString(BalancedLayout(12, 3, {.embedding = 6.0})), "1,6,5");
}

TEST(BalancedLayoutDeathTest, RefusesCostsThatAreNone) {
    EXPECT_DEATH(BalancedLayout(4, 2, {.layer = 0.0}), "cost of a layer");
    EXPECT_DEATH(BalancedLayout(4, 2, {.head = -1.0}), "cost of a part");
    EXPECT_DEATH(BalancedLayout(4, 2, {.embedding = std::numeric_limits<double>::quiet_NaN()}), "cost of a part");
}

TEST(EvenLayoutDeathTest, RefusesNumbersThatNoModelHas) {
    EXPECT_DEATH(EvenLayout(-1, 1), "-1 layers");
    EXPECT_DEATH(EvenLayout(4, 0), "0 stages");
}

}  // namespace
}  // namespace infini_train::nn::parallel
