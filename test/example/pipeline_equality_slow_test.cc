// The whole grid of shapes, each run compared to the bit with one rank: minutes, so it has the label slow.

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>

#include "gtest/gtest.h"

#include "test/support/equality_grid.h"

namespace infini_train::test {
namespace {

TEST(PipelineEqualityGrid, HasEveryShapeThatFits) {
    // Of schedule, V and L, by P: 18 fit on one and two ranks, 16 on three, 14 on four, 9 on eight. Values of M: 3, 4,
    // 5, 6, 7. Models, dtypes, evaluation or not: 3 x 2 x 2.
    EXPECT_EQ(EqualityGrid(GridExtent::kWhole).size(), (18u * 3 + 18 * 4 + 16 * 5 + 14 * 6 + 9 * 7) * 12);
}

using Share = std::tuple<const char*, DataType>;

class PipelineEqualityShare : public testing::TestWithParam<Share> {};

TEST_P(PipelineEqualityShare, IsExact) {
    const auto [schedule, dtype] = GetParam();
    EqualityChecker checker;
    std::map<int, std::array<int, 2>> counts;  // by P: equal, tried
    for (const auto& [run, values] : EqualityGrid(GridExtent::kWhole)) {
        if (run.schedule != schedule || run.dtype != dtype) {
            continue;
        }
        const std::string difference = checker.DifferenceOf(run);
        EXPECT_EQ(difference, "") << ToString(run);
        counts[run.num_ranks][0] += difference.empty() ? 1 : 0;
        counts[run.num_ranks][1] += 1;
    }
    EXPECT_EQ(counts.size(), 5u);
    for (const auto& [num_ranks, count] : counts) {
        std::printf("%s %s P %d: %d of %d equal\n", schedule, std::string(Name(dtype)).c_str(), num_ranks, count[0],
                    count[1]);
    }
}

INSTANTIATE_TEST_SUITE_P(Whole, PipelineEqualityShare,
                         testing::Combine(testing::Values("gpipe", "1f1b", "1f1b_eager", "interleaved", "looped_bfs"),
                                          testing::Values(DataType::kFloat32, DataType::kBFloat16)),
                         [](const testing::TestParamInfo<Share>& info) {
                             return std::string(std::get<0>(info.param)) + "_" +
                                    std::string(Name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace infini_train::test
