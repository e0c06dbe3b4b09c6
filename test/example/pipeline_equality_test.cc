// A pipeline learns what one rank learns that accumulates the same micro-batches: losses, gradient norms and parameters
// after five steps of AdamW, to the bit. Here a subset of all shapes that has each pair of values; the whole grid is in
// pipeline_equality_slow_test.cc.

#include <bit>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/common/error.h"
#include "test/nn/parallel/pp/golden_plans.h"
#include "test/support/equality_grid.h"
#include "test/support/pipeline_case.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

using nn::parallel::PipelineShape;

std::set<std::tuple<size_t, int, size_t, int>> PairsOf(const GridPoint& point) {
    std::set<std::tuple<size_t, int, size_t, int>> pairs;
    for (size_t a = 0; a < point.values.size(); ++a) {
        for (size_t b = 0; b < point.values.size(); ++b) {
            pairs.emplace(a, point.values[a], b, point.values[b]);
        }
    }
    return pairs;
}

TEST(PipelineEquality, IsTriedWithEachPairOfValues) {
    const std::vector<GridPoint> points = EqualityGrid(GridExtent::kCovered);
    std::set<std::tuple<size_t, int, size_t, int>> missing;
    for (const GridPoint& point : points) {
        missing.merge(PairsOf(point));
    }
    // P, M, schedule, V, L, model, dtype, evaluation, dropout, recompute.
    std::vector<int> num_values(10, 0);
    for (const auto& [a, value, b, other] : missing) {
        num_values[a] += a == b ? 1 : 0;
    }
    EXPECT_EQ(num_values, (std::vector<int>{5, 7, 5, 3, 2, 3, 2, 2, 2, 2}));
    for (const size_t i : CoveringSubset(points)) {
        for (const auto& pair : PairsOf(points[i])) {
            missing.erase(pair);
        }
    }
    EXPECT_TRUE(missing.empty()) << missing.size() << " pairs are not tried";
}

/// bugs.csv O01, O02, O11: each schedule with M below, at and above P, and no test stops at two ranks.
void ExpectSubsetOnRanks(int num_ranks) {
    const std::vector<GridPoint> points = EqualityGrid(GridExtent::kCovered);
    EqualityChecker checker;
    int num_tried = 0;
    for (const size_t i : CoveringSubset(points)) {
        const PipelineCase& run = points[i].run;
        if (run.num_ranks == num_ranks) {
            EXPECT_EQ(checker.DifferenceOf(run), "") << ToString(run);
            ++num_tried;
        }
    }
    EXPECT_GE(num_tried, 6);  // as many as there are values of M on one rank
}

TEST(PipelineEquality, OnOneRank) {
    ExpectSubsetOnRanks(1);
}

TEST(PipelineEquality, OnTwoRanks) {
    ExpectSubsetOnRanks(2);
}

TEST(PipelineEquality, OnThreeRanks) {
    ExpectSubsetOnRanks(3);
}

TEST(PipelineEquality, OnFourRanks) {
    ExpectSubsetOnRanks(4);
}

TEST(PipelineEquality, OnEightRanks) {
    ExpectSubsetOnRanks(8);
}

// bugs.csv O08, and P V > L in general.
TEST(PipelineEquality, MoreStagesThanLayersAreRefused) {
    int num_refused = 0;
    for (const int num_layers : {7, 24}) {
        for (const int num_ranks : {1, 2, 3, 4, 8}) {
            for (const int num_chunks : {1, 2, 3}) {
                const PipelineCase run = {
                    .model = {.num_layers = num_layers}, .num_ranks = num_ranks, .num_chunks = num_chunks};
                const PipelineShape shape = {.num_ranks = num_ranks, .num_chunks = num_chunks};
                const auto make = [&] {
                    MakeChunks(run, shape, 0, std::make_shared<nn::DropoutPosition>(), MakeCpuDevice());
                };
                if (num_ranks * num_chunks <= num_layers) {
                    EXPECT_NO_THROW(make());
                    continue;
                }
                ++num_refused;
                try {
                    make();
                    ADD_FAILURE() << ToString(run);
                } catch (const Error& error) {
                    EXPECT_NE(std::string(error.what()).find("more stages than layers"), std::string::npos);
                }
            }
        }
    }
    EXPECT_EQ(num_refused, 6);  // 7 layers: 3 x 3, 4 x 2, 4 x 3, 8 x 1, 8 x 2, 8 x 3
}

/// Backward in two parts, B and W; in zb_v and dualpipe_v the first and the last stage are on one rank.
void ExpectGoldenPlanExact(const std::string& size, const std::string& name) {
    const TemporaryFolder folder;
    const nlohmann::json numbers = nn::parallel::test::GoldenFile().at(size).at(name);
    const std::string path = folder.File(name + ".json");
    WriteTextFile(path, numbers.dump());
    EXPECT_NE(numbers.at("order")[0].get<std::string>().find("W"), std::string::npos);
    EqualityChecker checker;
    for (const TinyModelKind kind : {TinyModelKind::kGpt2, TinyModelKind::kTiedLlama, TinyModelKind::kUntiedLlama}) {
        for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
            const PipelineCase run = {.model = {.kind = kind, .num_layers = 9, .dropout = 0.25f},
                                      .dtype = dtype,
                                      .num_microbatches = numbers.at("M").get<int>(),
                                      .evaluates = true,
                                      .num_ranks = numbers.at("P").get<int>(),
                                      .num_chunks = numbers.at("V").get<int>(),
                                      .schedule = path};
            EXPECT_EQ(checker.DifferenceOf(run), "") << ToString(run);
        }
    }
}

TEST(PipelineEquality, OfTheFirstZeroBubblePlanFromAFile) {
    ExpectGoldenPlanExact("P2_M4", "zb_h1");
    ExpectGoldenPlanExact("P4_M8", "zb_h1");
}

TEST(PipelineEquality, OfTheSecondZeroBubblePlanFromAFile) {
    ExpectGoldenPlanExact("P2_M4", "zb_h2");
    ExpectGoldenPlanExact("P4_M8", "zb_h2");
}

TEST(PipelineEquality, OfZeroBubbleVFromAFile) {
    ExpectGoldenPlanExact("P2_M4", "zb_v");
    ExpectGoldenPlanExact("P4_M8", "zb_v");
}

TEST(PipelineEquality, OfDualPipeVFromAFile) {
    ExpectGoldenPlanExact("P2_M4", "dualpipe_v");
    ExpectGoldenPlanExact("P4_M8", "dualpipe_v");
}

// bugs.csv O13, O18: nothing of a longer or a shorter step is cut, kept or forgotten.
TEST(PipelineEquality, WithRowsOfAnotherLengthInEachStep) {
    EqualityChecker checker;
    for (const int num_ranks : {2, 4}) {
        for (const std::string schedule : {"gpipe", "1f1b", "1f1b_eager", "interleaved", "looped_bfs"}) {
            const bool has_chunks = schedule == "interleaved" || schedule == "looped_bfs";
            const PipelineCase run = {.model = {.num_layers = 8},
                                      .num_microbatches = 4,
                                      .lengths = {8, 16, 5, 16, 32},
                                      .evaluates = true,
                                      .num_ranks = num_ranks,
                                      .num_chunks = has_chunks ? 2 : 1,
                                      .schedule = schedule};
            EXPECT_EQ(checker.DifferenceOf(run), "") << ToString(run);
        }
    }
}

// bugs.csv O12, O96: with two ranks, each is before and behind the other.
TEST(PipelineEquality, OfOneCurveHoweverManyChunksTwoRanksHave) {
    for (const std::string schedule : {"interleaved", "looped_bfs"}) {
        PipelineCase run = {.model = {.num_layers = 8}, .num_microbatches = 5, .num_ranks = 2, .schedule = schedule};
        const RunNumbers one_chunk = RunPipeline(run)[0].numbers;
        EXPECT_EQ(one_chunk.losses, RunReference(run).losses);
        EXPECT_NE(one_chunk.losses[0], one_chunk.losses[4]);
        for (const int num_chunks : {2, 3, 4}) {
            run.num_chunks = num_chunks;
            const RunNumbers chunks = RunPipeline(run)[0].numbers;
            EXPECT_EQ(chunks.losses, one_chunk.losses) << num_chunks;
            EXPECT_EQ(chunks.grad_norms, one_chunk.grad_norms) << num_chunks;
        }
    }
}

// bugs.csv O94
TEST(PipelineEquality, OfABfloat16RunIsNotThatOfAFloat32Run) {
    PipelineCase run = {.num_microbatches = 3, .num_ranks = 2, .schedule = "1f1b"};
    const RunNumbers wide = RunPipeline(run)[0].numbers;
    run.dtype = DataType::kBFloat16;
    const RunNumbers narrow = RunPipeline(run)[0].numbers;
    EXPECT_EQ(narrow.losses, RunReference(run).losses);
    for (size_t step = 0; step < wide.losses.size(); ++step) {
        const float loss = std::bit_cast<float>(wide.losses[step]);
        EXPECT_NEAR(std::bit_cast<float>(narrow.losses[step]), loss, 0.02f * loss) << step;
        EXPECT_NE(narrow.losses[step], wide.losses[step]) << step;
    }
}

}  // namespace
}  // namespace infini_train::test
