#include "infini_train/src/nn/parallel/pp/timeline_layout.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "infini_train/include/common/str_cat.h"

namespace infini_train::nn::parallel {
namespace {

double MeanForwardMs(const Timeline& timeline) {
    double sum = 0.0;
    int count = 0;
    for (const std::vector<TimelineEvent>& events : timeline) {
        for (const TimelineEvent& event : events) {
            if (event.action.kind == ActionKind::kForward) {
                sum += event.end_ms - event.start_ms;
                ++count;
            }
        }
    }
    return sum / std::max(1, count);
}

}  // namespace

double TextWidth(std::string_view text, double size) {
    double width = 0.0;
    for (const char each : text) {
        width += (each == '.' || each == ' ' ? 0.32 : 0.64) * size;
    }
    return width;
}

std::string Fixed(double value, int digits) {
    char text[64];
    return {text, static_cast<size_t>(std::snprintf(text, sizeof(text), "%.*f", digits, value))};
}

double TickStep(double end) {
    const double power = std::pow(10.0, std::floor(std::log10(end / 10.0)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (end <= 10.0 * factor * power) {
            return factor * power;
        }
    }
    return 10.0 * power;
}

TimelineLayout MakeTimelineLayout(const PipelineShape& shape, const Timeline& measured, const Timeline& simulated) {
    TimelineLayout layout = {.num_ranks = shape.num_ranks};
    const double end_ms = std::max(MakespanMs(measured), MakespanMs(simulated));
    if (end_ms > 0.0) {
        layout.end_ms = end_ms;
        layout.digits = end_ms < 10.0 ? 3 : end_ms < 1000.0 ? 2 : 1;
    }
    const double forward_ms = MeanForwardMs(measured);
    if (forward_ms > 0.0) {
        const std::string token = StrCat("F", shape.num_stages() - 1, ".", shape.num_microbatches - 1);
        const double box = TextWidth(token, TimelineLayout::kTokenSize) + 9.0;  // some are shorter than the mean
        const double wanted = end_ms / forward_ms * box;
        layout.plot_width = std::clamp(wanted, TimelineLayout::kMinPlotWidth, TimelineLayout::kMaxPlotWidth);
        layout.has_tokens = wanted <= TimelineLayout::kMaxPlotWidth;
    }
    return layout;
}

}  // namespace infini_train::nn::parallel
