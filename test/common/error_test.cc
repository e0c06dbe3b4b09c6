#include "infini_train/include/common/error.h"

#include <cstdint>
#include <optional>

#include "gtest/gtest.h"

#include "infini_train/include/common/checked_math.h"

namespace infini_train {
namespace {

TEST(Error, SaysWhereWhatGotAndWanted) {
    EXPECT_STREQ(Error({.where = "a.bin", .what = "wrong size", .got = "3", .wanted = "4"}).what(),
                 "a.bin: wrong size (got 3, wanted 4)");
    EXPECT_STREQ(Error({.where = "a.bin", .what = "wrong size", .got = "3"}).what(), "a.bin: wrong size (got 3)");
    EXPECT_STREQ(Error({.where = "--x", .what = "no value", .wanted = "int"}).what(), "--x: no value (wanted int)");
    EXPECT_STREQ(Error({.what = "out of memory"}).what(), "out of memory");
}

TEST(Error, IsOneLineWhateverAValueHolds) {
    EXPECT_STREQ(Error({.where = "--dtype", .what = "unknown value", .got = "a\nb\tc"}).what(),
                 "--dtype: unknown value (got a b c)");
}

TEST(Error, ExitsWithTwoForBadInputAndOneForWhatFailedWhileRunning) {
    EXPECT_EQ(Error({.what = "x"}).exit_code(), 2);
    EXPECT_EQ(Error({.what = "x", .kind = Error::Kind::kRuntime}).exit_code(), 1);
}

TEST(CheckedMath, GivesNothingWhereSixtyFourBitsDoNotSuffice) {
    EXPECT_EQ(CheckedMultiply(UINT64_MAX, 1), UINT64_MAX);
    EXPECT_EQ(CheckedMultiply(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
    EXPECT_EQ(CheckedAdd(UINT64_MAX - 1, 1), UINT64_MAX);
    EXPECT_EQ(CheckedAdd(UINT64_MAX, 1), std::nullopt);
}

}  // namespace
}  // namespace infini_train
