#include "example/common/progress.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <string>

#include "gtest/gtest.h"

#include "test/support/run_program.h"

namespace infini_train {
namespace {

StepMetrics MetricsOf(int64_t step) {
    return {.step = step, .loss = 3.25f, .grad_norm = 1.5f, .lr = 1e-3f, .ms = 2000.0, .tokens_per_s = 8125.0};
}

TEST(ClockText, IsHoursMinutesAndSeconds) {
    EXPECT_EQ(ClockText(0.0), "0:00:00");
    EXPECT_EQ(ClockText(59.6), "0:01:00");
    EXPECT_EQ(ClockText(3599.0), "0:59:59");
    EXPECT_EQ(ClockText(3600.0 * 100 + 61.0), "100:01:01");
    EXPECT_EQ(ClockText(-5.0), "0:00:00");
    EXPECT_EQ(ClockText(std::numeric_limits<double>::infinity()), "?");
    EXPECT_EQ(ClockText(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(TimeLeft, FollowsTheLastStepsAndNoSingleOne) {
    TimeLeft left;
    EXPECT_EQ(left.Seconds(10), 0.0);
    left.Add(9000.0);
    EXPECT_EQ(left.Seconds(10), 90.0) << "all that is known";
    left.Add(100.0);
    EXPECT_EQ(left.Seconds(10), 1.0) << "the first step is left out";
    for (int i = 0; i < 40; ++i) {
        left.Add(i == 20 ? 50000.0 : 200.0);
    }
    EXPECT_EQ(left.Seconds(10), 2.0);
    for (int i = 0; i < 40; ++i) {
        left.Add(300.0);
    }
    EXPECT_EQ(left.Seconds(10), 3.0);
}

TEST(ProgressText, LeavesOutTheFieldsThatDoNotFit) {
    const std::string whole = "step 7/100 | loss 3.2500 | 8125 tok/s | ETA 0:03:06";
    EXPECT_EQ(ProgressText(MetricsOf(7), 100, 186.0, 200), whole);
    EXPECT_EQ(ProgressText(MetricsOf(7), 100, 186.0, 52), whole);
    EXPECT_EQ(ProgressText(MetricsOf(7), 100, 186.0, 51), "step 7/100 | loss 3.2500 | 8125 tok/s");
    EXPECT_EQ(ProgressText(MetricsOf(7), 100, 186.0, 25), "step 7/100 | loss 3.2500");
    EXPECT_EQ(ProgressText(MetricsOf(7), 100, 186.0, 11), "step 7/100");
    EXPECT_EQ(ProgressText(MetricsOf(7), 100, 186.0, 5), "step");
    EXPECT_EQ(ProgressText(MetricsOf(7), 100, 186.0, 0), "");
}

TEST(ProgressText, HasRoomForAnyNumber) {
    const StepMetrics metrics = {.step = INT64_MAX,
                                 .loss = std::numeric_limits<float>::max(),
                                 .tokens_per_s = std::numeric_limits<double>::max()};
    EXPECT_LE(ProgressText(metrics, INT64_MAX, 1e300, 1000).size(), 300u);
}

TEST(ProgressLine, WritesAPlainLineAStepWhereNobodyWatches) {
    const test::TemporaryFolder folder;
    std::FILE* out = std::fopen(folder.File("out").c_str(), "w");
    {
        ProgressLine progress({.num_steps = 2, .out = out});
        progress.Show(MetricsOf(1));
        progress.Print("a note");
        progress.Clear();
        progress.Show(MetricsOf(2));
    }
    std::fclose(out);
    const auto line = [](int64_t step) { return StepLine(MetricsOf(step), {}, 2) + "\n"; };
    EXPECT_EQ(test::ReadTextFile(folder.File("out")), line(1) + "a note\n" + line(2));
}

/// A terminal of so many columns that nobody sees.
class Terminal {
 public:
    explicit Terminal(unsigned short num_columns) {
        const winsize size = {.ws_row = 24, .ws_col = num_columns, .ws_xpixel = 0, .ws_ypixel = 0};
        int inner = -1;
        if (openpty(&outer_, &inner, nullptr, nullptr, &size) != 0) {
            return;
        }
        fcntl(outer_, F_SETFL, O_NONBLOCK);
        out_ = fdopen(inner, "w");
        setenv("TERM", "xterm", 1);
    }
    ~Terminal() {
        if (is_open()) {
            std::fclose(out_);
            close(outer_);
        }
    }

    /// False where the machine has none: a container without /dev/pts.
    bool is_open() const { return out_ != nullptr; }
    std::FILE* out() const { return out_; }

    /// All that was written to it since.
    std::string Written() const {
        char bytes[4096];
        const ssize_t count = read(outer_, bytes, sizeof(bytes));
        return {bytes, count > 0 ? static_cast<size_t>(count) : 0};
    }

 private:
    int outer_ = -1;
    std::FILE* out_ = nullptr;
};

TEST(ProgressLine, IsDrawnInItsPlaceOnATerminal) {
    const Terminal terminal(80);
    if (!terminal.is_open()) {
        GTEST_SKIP() << "no pseudo-terminal on this machine";
    }
    {
        ProgressLine progress({.num_steps = 4, .out = terminal.out(), .least_interval = std::chrono::hours(1)});
        progress.Show(MetricsOf(1));
        EXPECT_EQ(terminal.Written(), "\rstep 1/4 | loss 3.2500 | 8125 tok/s | ETA 0:00:06\x1b[K");
        progress.Show(MetricsOf(2));
        EXPECT_EQ(terminal.Written(), "") << "before the interval is over";
        progress.Print("step    2 | val loss 3.1");
        EXPECT_EQ(terminal.Written(), "\r\x1b[Kstep    2 | val loss 3.1\r\n");
        progress.Show(MetricsOf(3));
        EXPECT_EQ(terminal.Written(), "\rstep 3/4 | loss 3.2500 | 8125 tok/s | ETA 0:00:02\x1b[K");
        progress.Show(MetricsOf(4));
        EXPECT_EQ(terminal.Written(), "\rstep 4/4 | loss 3.2500 | 8125 tok/s | ETA 0:00:00\x1b[K");
    }
    EXPECT_EQ(terminal.Written(), "\r\n");
}

TEST(ProgressLine, FollowsTheWidthOfTheTerminal) {
    const Terminal terminal(30);
    if (!terminal.is_open()) {
        GTEST_SKIP() << "no pseudo-terminal on this machine";
    }
    ProgressLine progress({.num_steps = 4, .out = terminal.out()});
    progress.Show(MetricsOf(1));
    EXPECT_EQ(terminal.Written(), "\rstep 1/4 | loss 3.2500\x1b[K");
    const winsize size = {.ws_row = 24, .ws_col = 12, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(fileno(terminal.out()), TIOCSWINSZ, &size), 0);
    progress.Show(MetricsOf(4));
    EXPECT_EQ(terminal.Written(), "\rstep 4/4\x1b[K");
}

TEST(ProgressLine, IsPlainOnATerminalThatCannotGoBack) {
    const Terminal terminal(80);
    if (!terminal.is_open()) {
        GTEST_SKIP() << "no pseudo-terminal on this machine";
    }
    setenv("TERM", "dumb", 1);
    ProgressLine progress({.num_steps = 4, .out = terminal.out()});
    progress.Show(MetricsOf(1));
    EXPECT_EQ(terminal.Written(), StepLine(MetricsOf(1), {}, 4) + "\r\n");
}

}  // namespace
}  // namespace infini_train
