#pragma once

#include <string>
#include <string_view>

#include "infini_train/include/nn/parallel/pp/timeline.h"

namespace infini_train::nn::parallel {

/// An upper bound of what digits, capitals, '.' and blanks take in the usual sans-serif fonts, in pixels.
double TextWidth(std::string_view text, double size);

/// 12.346 for 3 digits.
std::string Fixed(double value, int digits);

/// 1, 2 or 5 times a power of ten: the smallest of which 10 reach the end, which is positive.
double TickStep(double end);

/// Where the parts of a drawing of two timelines are, in pixels, and the scale of their time axis. A panel is a heading
/// and a row for each rank, and has two columns of numbers at its right.
struct TimelineLayout {
    static constexpr double kMargin = 20.0;
    static constexpr double kTitleY = 32.0;
    static constexpr double kLegendY = 60.0;
    static constexpr double kPanelsY = 78.0;
    static constexpr double kHeadingHeight = 26.0;
    static constexpr double kRowHeight = 26.0;
    static constexpr double kRowPitch = 30.0;
    static constexpr double kPanelGap = 14.0;
    static constexpr double kFooterHeight = 104.0;
    static constexpr double kPlotX = 76.0;
    static constexpr double kBubbleWidth = 66.0;
    static constexpr double kWaitWidth = 92.0;
    static constexpr double kMinPlotWidth = 640.0;
    static constexpr double kMaxPlotWidth = 2400.0;
    static constexpr double kTokenSize = 11.0;

    double end_ms = 1.0;  // of the axis
    double plot_width = kMinPlotWidth;
    int num_ranks = 1;
    int digits = 2;          // of a time in ms
    bool has_tokens = true;  // in the boxes; else micro-batches: there is no room for more

    double XOf(double ms) const { return kPlotX + ms / end_ms * plot_width; }
    double PlotEnd() const { return kPlotX + plot_width; }
    double Width() const { return PlotEnd() + kBubbleWidth + kWaitWidth + kMargin; }
    double PanelHeight() const { return kHeadingHeight + num_ranks * kRowPitch; }
    double PanelY(int panel) const { return kPanelsY + panel * (PanelHeight() + kPanelGap); }
    double RowY(int panel, int rank) const { return PanelY(panel) + kHeadingHeight + rank * kRowPitch; }
    double RowsEnd(int panel) const { return RowY(panel, num_ranks - 1) + kRowHeight; }
    double AxisY() const { return PanelY(1) + PanelHeight(); }
    double Height() const { return AxisY() + kFooterHeight; }
    std::string Ms(double ms) const { return Fixed(ms, digits) + " ms"; }
};

/// Both timelines fit, and so does the token of a mean forward of the measured one in its box, up to kMaxPlotWidth.
TimelineLayout MakeTimelineLayout(const PipelineShape& shape, const Timeline& measured, const Timeline& simulated);

}  // namespace infini_train::nn::parallel
