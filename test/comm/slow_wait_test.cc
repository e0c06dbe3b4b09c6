#include "infini_train/src/comm/slow_wait.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace infini_train::comm {
namespace {

using Clock = SlowWait::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

double DueS(const SlowWait& wait) {
    return std::chrono::duration<double>(wait.due() - wait.since()).count();
}

TEST(SlowWait, IsToldAfterThirtySecondsOrAThirdOfTheTimeout) {
    EXPECT_DOUBLE_EQ(DueS({600.0, Clock::now()}), 30.0);
    EXPECT_DOUBLE_EQ(DueS({90.0, Clock::now()}), 30.0);
    EXPECT_DOUBLE_EQ(DueS({6.0, Clock::now()}), 2.0);
    EXPECT_DOUBLE_EQ(DueS({0.001, Clock::now()}), 1.0);
}

TEST(SlowWait, IsToldAgainWhenItHasLastedTwiceAsLong) {
    SlowWait wait(600.0, Clock::now());
    for (const double next_s : {60.0, 120.0, 240.0}) {
        wait.Told(wait.due());
        EXPECT_DOUBLE_EQ(DueS(wait), next_s);
    }
}

TEST(SlowWait, IsToldOnceForAllTimesThatWentByUnseen) {
    SlowWait wait(600.0, Clock::now());
    wait.Told(wait.since() + seconds(95));
    EXPECT_DOUBLE_EQ(DueS(wait), 120.0);
}

/// Waits that begin one after the other.
struct Waits {
    explicit Waits(double timeout_s = 600.0) : board(timeout_s) {}

    void Begin(int rank, const std::vector<int>& awaited) {
        ranks.push_back(std::make_unique<WaitBoard::Wait>(&board, rank, awaited));
    }
    /// What the index-th wait tells after 12 s.
    std::string Told(size_t index, const std::vector<int>& awaited) {
        WaitBoard::Wait& wait = *ranks[index];
        return wait.Warning(wait.since() + milliseconds(12400), {.ranks = awaited, .text = "TEXT"});
    }

    WaitBoard board;
    std::vector<std::unique_ptr<WaitBoard::Wait>> ranks;
};

TEST(WaitBoard, SaysWhoHasWaitedHowLongForWhat) {
    Waits waits;
    waits.Begin(3, {1});
    EXPECT_EQ(waits.Told(0, {1}), "[rank 3] has waited 12 s for TEXT");
}

TEST(WaitBoard, LetsTheDirectWaiterOfAChainTell) {
    Waits waits;
    waits.Begin(0, {1});
    waits.Begin(1, {2});
    waits.Begin(2, {3});
    EXPECT_EQ(waits.Told(0, {1}), "");
    EXPECT_EQ(waits.Told(1, {2}), "");
    EXPECT_EQ(waits.Told(2, {3}), "[rank 2] has waited 12 s for TEXT");
}

TEST(WaitBoard, LetsTheFirstOfSeveralTell) {
    Waits waits;
    waits.Begin(2, {3});
    waits.Begin(0, {1, 3});
    waits.Begin(1, {3});
    EXPECT_EQ(waits.Told(0, {3}), "[rank 2] has waited 12 s for TEXT");
    EXPECT_EQ(waits.Told(1, {1, 3}), "");
    EXPECT_EQ(waits.Told(2, {3}), "");
    waits.ranks[0].reset();
    EXPECT_EQ(waits.Told(1, {1, 3}), "[rank 0] has waited 12 s for TEXT; rank 1 waits, too");
}

TEST(WaitBoard, GoesByWhoIsWaitedForNow) {
    Waits waits;
    waits.Begin(0, {1, 2});
    waits.Begin(3, {2});
    EXPECT_EQ(waits.Told(0, {1}), "[rank 0] has waited 12 s for TEXT");  // rank 2 has come
    EXPECT_EQ(waits.Told(1, {2}), "[rank 3] has waited 12 s for TEXT");
}

TEST(WaitBoard, LetsOneOfACircleTell) {
    Waits waits;
    waits.Begin(1, {0});
    waits.Begin(0, {1});
    EXPECT_EQ(waits.Told(0, {0}), "[rank 1] has waited 12 s for TEXT; rank 0 waits, too");
    EXPECT_EQ(waits.Told(1, {1}), "");
}

TEST(WaitBoardDeathTest, HasOneWaitOfARank) {
    Waits waits;
    waits.Begin(1, {0});
    EXPECT_DEATH(waits.Begin(1, {2}), "rank 1 waits twice at a time");
}

}  // namespace
}  // namespace infini_train::comm
