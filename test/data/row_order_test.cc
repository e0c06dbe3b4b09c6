#include "infini_train/include/data/row_order.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace infini_train::data {
namespace {

std::vector<int64_t> OrderOf(int64_t num_rows, uint64_t seed, int64_t epoch) {
    const RowOrder order(num_rows, seed, epoch);
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < num_rows; ++i) {
        rows.push_back(order(i));
    }
    return rows;
}

TEST(RowOrder, IsAPermutationOfAnyNumberOfRows) {
    for (const int64_t num_rows : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097}) {
        std::vector<int64_t> rows = OrderOf(num_rows, 42, 3);
        std::sort(rows.begin(), rows.end());
        for (int64_t i = 0; i < num_rows; ++i) {
            ASSERT_EQ(rows[static_cast<size_t>(i)], i) << num_rows;
        }
    }
}

TEST(RowOrder, DependsOnSeedAndEpochAlone) {
    EXPECT_EQ(OrderOf(100, 1, 0), OrderOf(100, 1, 0));
    EXPECT_NE(OrderOf(100, 1, 0), OrderOf(100, 2, 0));
    EXPECT_NE(OrderOf(100, 1, 0), OrderOf(100, 1, 1));
}

/// Of 10000 rows, how many of the first half come in the first half, and how many neighbours stay neighbours: 2500 and
/// 2 on average, with deviations of 25 and 1.4.
TEST(RowOrder, MixesNearAndFar) {
    constexpr int64_t kRows = 10000;
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
        const std::vector<int64_t> rows = OrderOf(kRows, 5, epoch);
        const auto num_stayed =
            std::count_if(rows.begin(), rows.begin() + kRows / 2, [](int64_t row) { return row < kRows / 2; });
        EXPECT_NEAR(static_cast<double>(num_stayed), kRows / 4, 200);
        int64_t num_neighbours = 0;
        for (size_t i = 1; i < rows.size(); ++i) {
            num_neighbours += std::abs(rows[i] - rows[i - 1]) == 1 ? 1 : 0;
        }
        EXPECT_LE(num_neighbours, 12);
    }
}

TEST(RowOrder, ReachesPlacesFarBeyond32Bits) {
    const RowOrder order(int64_t{1} << 40, 9, 0);
    EXPECT_NE(order(0), order(1));
    EXPECT_LT(order((int64_t{1} << 40) - 1), int64_t{1} << 40);
}

TEST(RowOrder, DiesOnAPlaceThatIsNone) {
    const RowOrder order(10, 9, 0);
    EXPECT_DEATH(order(10), "10 of 10 rows");
    EXPECT_DEATH(order(-1), "-1 of 10 rows");
}

}  // namespace
}  // namespace infini_train::data
