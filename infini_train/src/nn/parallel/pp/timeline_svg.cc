#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"
#include "infini_train/src/nn/parallel/pp/svg_writer.h"
#include "infini_train/src/nn/parallel/pp/timeline_layout.h"

namespace infini_train::nn::parallel {
namespace {

using Anchor = SvgWriter::Anchor;

constexpr std::string_view kInk = "#222222";
constexpr std::string_view kGrey = "#666666";
constexpr std::string_view kGridGrey = "#d5d5d5";
constexpr std::string_view kRowGrey = "#f5f5f5";
constexpr std::string_view kHatch = "url(#wait)";
constexpr std::string_view kHatchPattern =
    R"svg(<pattern id="wait" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">)svg"
    R"svg(<rect width="5" height="5" fill="#ececec"/><rect width="1.2" height="5" fill="#a0a0a0"/></pattern>)svg";

struct KindStyle {
    ActionKind kind;
    std::string_view name;
    std::array<double, 3> rgb;  // Okabe and Ito's palette: the colour-blind can tell them apart
};
constexpr std::array<KindStyle, 4> kKinds = {{
    {ActionKind::kForward, "F forward", {0, 114, 178}},
    {ActionKind::kBackward, "D backward", {230, 159, 0}},
    {ActionKind::kBackwardInput, "B gradient of the input", {204, 121, 167}},
    {ActionKind::kBackwardWeight, "W gradient of the weights", {0, 158, 115}},
}};

struct Colors {
    std::string fill;
    std::string_view text;
};

/// From the lightest for chunk 0 to nearly the full colour for the last.
Colors ColorsOf(const KindStyle& style, int chunk, int num_chunks) {
    const double white = num_chunks == 1 ? 0.35 : 0.65 - 0.6 * chunk / (num_chunks - 1);
    std::array<int, 3> rgb = {};
    for (size_t part = 0; part < rgb.size(); ++part) {
        rgb[part] = static_cast<int>(std::lround(style.rgb[part] + (255.0 - style.rgb[part]) * white));
    }
    char fill[16];
    std::snprintf(fill, sizeof(fill), "#%02x%02x%02x", static_cast<unsigned>(rgb[0]), static_cast<unsigned>(rgb[1]),
                  static_cast<unsigned>(rgb[2]));
    const double brightness = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
    return {.fill = fill, .text = brightness > 120.0 ? "#000000" : "#ffffff"};
}

const KindStyle& StyleOf(ActionKind kind) {
    const auto style =
        std::find_if(kKinds.begin(), kKinds.end(), [kind](const KindStyle& s) { return s.kind == kind; });
    CHECK(style != kKinds.end()) << "a timeline has compute actions only";
    return *style;
}

/// "1 rank", "2 ranks"
std::string Count(int number, std::string_view name, std::string_view plural = "s") {
    return StrCat(number, " ", name, number == 1 ? "" : plural);
}

/// Draws the two timelines of one shape.
class Drawing {
 public:
    Drawing(const PipelineShape& shape, const Timeline& measured, const Timeline& simulated)
        : shape_(shape),
          measured_(measured),
          simulated_(simulated),
          layout_(MakeTimelineLayout(shape, measured, simulated)),
          svg_(layout_.Width(), layout_.Height(), kHatchPattern) {}

    std::string Draw() {
        svg_.Text(TimelineLayout::kMargin, TimelineLayout::kTitleY,
                  StrCat("Pipeline step of ", layout_.Ms(MakespanMs(measured_)), ": P = ",
                         Count(shape_.num_ranks, "rank"), ", M = ", Count(shape_.num_microbatches, "micro-batch", "es"),
                         ", V = ", Count(shape_.num_chunks, "chunk"), " a rank"),
                  {.size = 16.0, .bold = true});
        DrawLegend();
        DrawPanel(0, "measured", measured_);
        DrawPanel(1, "simulated", simulated_);
        DrawAxis();
        DrawSummary();
        return svg_.Finish();
    }

 private:
    bool IsUsed(ActionKind kind) const {
        const auto has_kind = [kind](const std::vector<TimelineEvent>& events) {
            return std::any_of(events.begin(), events.end(),
                               [kind](const TimelineEvent& event) { return event.action.kind == kind; });
        };
        return std::any_of(measured_.begin(), measured_.end(), has_kind) ||
               std::any_of(simulated_.begin(), simulated_.end(), has_kind);
    }

    /// Text of the legend; returns where the next entry starts.
    double Label(double x, std::string_view text) {
        svg_.Text(x, TimelineLayout::kLegendY, text, {.size = 12.0});
        return x + TextWidth(text, 12.0) + 8.0;
    }

    void DrawLegend() {
        constexpr double kSide = 13.0;
        constexpr double kTop = TimelineLayout::kLegendY - 11.0;
        double x = TimelineLayout::kMargin;
        for (const KindStyle& style : kKinds) {
            if (!IsUsed(style.kind)) {
                continue;
            }
            for (int chunk = 0; chunk < shape_.num_chunks; ++chunk) {
                svg_.Rect({x, kTop, kSide, kSide}, ColorsOf(style, chunk, shape_.num_chunks).fill);
                x += kSide + 1.0;
            }
            x = Label(x + 5.0, style.name);
        }
        svg_.Rect({x, kTop, kSide, kSide}, kHatch);
        x = Label(x + kSide + 6.0, "wait for another rank");
        if (shape_.num_chunks > 1) {
            Label(x, StrCat("chunk 0 to ", shape_.num_chunks - 1, ": light to dark"));
        }
    }

    void DrawPanel(int panel, std::string_view name, const Timeline& timeline) {
        const double makespan_ms = MakespanMs(timeline);
        const double heading_y = layout_.PanelY(panel) + 17.0;
        const double bubble_x = layout_.PlotEnd() + TimelineLayout::kBubbleWidth;
        const double wait_x = bubble_x + TimelineLayout::kWaitWidth;
        svg_.Text(TimelineLayout::kMargin, heading_y, StrCat(name, ", ", layout_.Ms(makespan_ms)),
                  {.size = 13.0, .bold = true});
        svg_.Text(bubble_x, heading_y, "bubble", {.anchor = Anchor::kEnd, .fill = kGrey});
        svg_.Text(wait_x, heading_y, "total wait", {.anchor = Anchor::kEnd, .fill = kGrey});
        const std::vector<RankUse> uses = RankUses(timeline);
        for (int rank = 0; rank < shape_.num_ranks; ++rank) {
            const double y = layout_.RowY(panel, rank);
            const double text_y = y + 17.5;
            const RankUse& use = uses[static_cast<size_t>(rank)];
            svg_.Text(TimelineLayout::kMargin, text_y, StrCat("rank ", rank), {});
            svg_.Text(bubble_x, text_y, Fixed(100.0 * use.bubble, 1) + " %", {.anchor = Anchor::kEnd});
            svg_.Text(wait_x, text_y, layout_.Ms(use.wait_ms), {.anchor = Anchor::kEnd});
            svg_.Rect({TimelineLayout::kPlotX, y, layout_.plot_width, TimelineLayout::kRowHeight}, kRowGrey);
        }
        DrawGrid(panel);
        for (int rank = 0; rank < shape_.num_ranks; ++rank) {
            for (const TimelineEvent& event : timeline[static_cast<size_t>(rank)]) {
                DrawEvent(rank, layout_.RowY(panel, rank), event);
            }
        }
        const double end_x = layout_.XOf(makespan_ms);
        svg_.Line(end_x, layout_.RowY(panel, 0) - 4.0, end_x, layout_.RowsEnd(panel) + 3.0, kInk, "4 3");
    }

    void DrawEvent(int rank, double y, const TimelineEvent& event) {
        const std::string token = ToString(event.action, shape_, rank);
        const double wait_ms = event.start_ms - event.wait_begin_ms;
        const double wait_x = layout_.XOf(event.wait_begin_ms);
        const double x = layout_.XOf(event.start_ms);
        if (x - wait_x >= 0.5) {  // a thinner one is no more than a smear
            svg_.BeginTip(StrCat(token, " waited ", layout_.Ms(wait_ms), " from ", layout_.Ms(event.wait_begin_ms)));
            svg_.Rect({wait_x, y + 3.0, x - wait_x, TimelineLayout::kRowHeight - 6.0}, kHatch);
            svg_.EndTip();
        }
        // A hair of white between neighbours.
        const double width = std::max(0.3, layout_.XOf(event.end_ms) - x - 0.7);
        const Colors colors = ColorsOf(StyleOf(event.action.kind), event.action.chunk, shape_.num_chunks);
        svg_.BeginTip(StrCat(token, ": start ", layout_.Ms(event.start_ms), ", duration ",
                             layout_.Ms(event.end_ms - event.start_ms), ", waited ", layout_.Ms(wait_ms)));
        svg_.Rect({x, y, width, TimelineLayout::kRowHeight}, colors.fill);
        DrawToken(x + width / 2.0, y, width, token, colors.text);
        svg_.EndTip();
    }

    /// In the middle of a box: "F0.3", where that does not fit "3", else nothing.
    void DrawToken(double x, double y, double width, const std::string& token, std::string_view fill) {
        const std::string microbatch = token.substr(token.find('.') + 1);
        for (const std::string& text : {layout_.has_tokens ? token : microbatch, microbatch}) {
            if (TextWidth(text, TimelineLayout::kTokenSize) + 1.0 <= width) {
                svg_.Text(x, y + 17.0, text,
                          {.size = TimelineLayout::kTokenSize, .anchor = Anchor::kMiddle, .fill = fill});
                return;
            }
        }
    }

    void DrawGrid(int panel) {
        const double step = TickStep(layout_.end_ms);
        for (int tick = 0; tick * step <= layout_.end_ms; ++tick) {
            const double x = layout_.XOf(tick * step);
            svg_.Line(x, layout_.RowY(panel, 0), x, panel == 1 ? layout_.AxisY() : layout_.RowsEnd(panel), kGridGrey,
                      "");
        }
    }

    void DrawAxis() {
        const double y = layout_.AxisY();
        const double step = TickStep(layout_.end_ms);
        svg_.Line(TimelineLayout::kPlotX, y, layout_.PlotEnd(), y, kInk, "");
        for (int tick = 0; tick * step <= layout_.end_ms; ++tick) {
            const double x = layout_.XOf(tick * step);
            svg_.Line(x, y, x, y + 5.0, kInk, "");
            svg_.Text(x, y + 18.0, StrCat(tick * step), {.anchor = Anchor::kMiddle});
        }
        svg_.Text(TimelineLayout::kPlotX + layout_.plot_width / 2.0, y + 36.0, "ms since the step's start",
                  {.anchor = Anchor::kMiddle, .fill = kGrey});
    }

    void DrawSummary() {
        const double measured_ms = MakespanMs(measured_);
        const double simulated_ms = MakespanMs(simulated_);
        const std::string ratio =
            simulated_ms > 0.0 ? StrCat(", measured / simulated = ", Fixed(measured_ms / simulated_ms, 3)) : "";
        svg_.Text(
            TimelineLayout::kMargin, layout_.AxisY() + 64.0,
            StrCat("makespan: measured ", layout_.Ms(measured_ms), ", simulated ", layout_.Ms(simulated_ms), ratio),
            {.size = 13.0});
        const std::string_view label =
            layout_.has_tokens ? "F0.3 = forward of stage 0, micro-batch 3" : "the number in a box is its micro-batch";
        svg_.Text(
            TimelineLayout::kMargin, layout_.AxisY() + 85.0,
            StrCat("bubble of a rank = 1 - its work / makespan; simulated with the mean time of each measured action; ",
                   label),
            {.fill = kGrey});
    }

    const PipelineShape& shape_;
    const Timeline& measured_;
    const Timeline& simulated_;
    const TimelineLayout layout_;
    SvgWriter svg_;
};

}  // namespace

std::string TimelineSvg(const PipelineShape& shape, const Timeline& timeline, const Simulation& simulation) {
    CHECK_EQ(timeline.size(), static_cast<size_t>(shape.num_ranks)) << "ranks of the timeline";
    CHECK_EQ(simulation.ranks.size(), static_cast<size_t>(shape.num_ranks)) << "ranks of the simulation";
    const Timeline simulated = SimulatedTimeline(simulation);
    return Drawing(shape, timeline, simulated).Draw();
}

}  // namespace infini_train::nn::parallel
