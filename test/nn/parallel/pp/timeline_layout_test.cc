#include "infini_train/src/nn/parallel/pp/timeline_layout.h"

#include <string>

#include "gtest/gtest.h"

namespace infini_train::nn::parallel::test {
namespace {

/// A rank that runs forwards of so many ms.
Timeline Forwards(int count, double ms) {
    Timeline timeline(1);
    for (int m = 0; m < count; ++m) {
        timeline[0].push_back({{.microbatch = m}, m * ms, m * ms, (m + 1) * ms});
    }
    return timeline;
}

TimelineLayout LayoutOf(int count, double ms, double simulated_ms) {
    const PipelineShape shape = {.num_microbatches = count};
    return MakeTimelineLayout(shape, Forwards(count, ms), Forwards(count, simulated_ms));
}

TEST(TimelineLayout, StepsByOneTwoOrFiveTimesAPowerOfTen) {
    EXPECT_DOUBLE_EQ(TickStep(10.0), 1.0);
    EXPECT_DOUBLE_EQ(TickStep(10.1), 2.0);
    EXPECT_DOUBLE_EQ(TickStep(20.5), 5.0);
    EXPECT_DOUBLE_EQ(TickStep(99.0), 10.0);
    EXPECT_DOUBLE_EQ(TickStep(0.03), 0.005);
    EXPECT_DOUBLE_EQ(TickStep(123456.0), 20000.0);
}

TEST(TimelineLayout, FixesDigits) {
    EXPECT_EQ(Fixed(12.3456, 3), "12.346");
    EXPECT_EQ(Fixed(12.5, 1), "12.5");
    EXPECT_EQ(LayoutOf(3, 1.0, 1.0).Ms(2.5), "2.500 ms");
    EXPECT_EQ(LayoutOf(3, 100.0, 100.0).Ms(2.5), "2.50 ms");
    EXPECT_EQ(LayoutOf(3, 1000.0, 1000.0).Ms(2.5), "2.5 ms");
}

TEST(TimelineLayout, MakesRoomForTheTokenOfAForward) {
    const TimelineLayout layout = LayoutOf(50, 2.0, 1.0);
    const double box = layout.XOf(2.0) - layout.XOf(0.0);
    EXPECT_GT(box, TextWidth("F0.49", TimelineLayout::kTokenSize));
    EXPECT_LT(box, 2.0 * TextWidth("F0.49", TimelineLayout::kTokenSize));
    EXPECT_TRUE(layout.has_tokens);
    EXPECT_GT(layout.plot_width, TimelineLayout::kMinPlotWidth);
    // But within bounds.
    EXPECT_EQ(LayoutOf(2, 2.0, 1.0).plot_width, TimelineLayout::kMinPlotWidth);
    EXPECT_EQ(LayoutOf(500, 2.0, 1.0).plot_width, TimelineLayout::kMaxPlotWidth);
    EXPECT_FALSE(LayoutOf(500, 2.0, 1.0).has_tokens);
}

TEST(TimelineLayout, HasRoomForTheLongerTimeline) {
    for (const double simulated_ms : {1.0, 3.5}) {
        const TimelineLayout layout = LayoutOf(4, 2.0, simulated_ms);
        EXPECT_DOUBLE_EQ(layout.end_ms, simulated_ms > 2.0 ? 14.0 : 8.0);
        EXPECT_DOUBLE_EQ(layout.XOf(0.0), TimelineLayout::kPlotX);
        EXPECT_DOUBLE_EQ(layout.XOf(layout.end_ms), layout.PlotEnd());
        EXPECT_LT(layout.PlotEnd(), layout.Width());
    }
}

TEST(TimelineLayout, PutsRowsAndPanelsBelowEachOther) {
    const TimelineLayout layout = {.num_ranks = 3};
    for (const int panel : {0, 1}) {
        EXPECT_LT(layout.PanelY(panel), layout.RowY(panel, 0));
        EXPECT_LE(layout.RowY(panel, 1) + TimelineLayout::kRowHeight, layout.RowY(panel, 2));
        EXPECT_DOUBLE_EQ(layout.RowY(panel, 2) + TimelineLayout::kRowHeight, layout.RowsEnd(panel));
    }
    EXPECT_LT(layout.RowsEnd(0), layout.PanelY(1));
    EXPECT_LE(layout.RowsEnd(1), layout.AxisY());
    EXPECT_LT(layout.AxisY(), layout.Height());
}

TEST(TimelineLayout, OfNothingHasAnAxis) {
    const TimelineLayout layout = MakeTimelineLayout({}, {{}}, {{}});
    EXPECT_GT(layout.end_ms, 0.0);
    EXPECT_EQ(layout.plot_width, TimelineLayout::kMinPlotWidth);
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
