#include "example/common/report_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "infini_train/include/common/markup_escape.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

constexpr double kSide = 1000.0;   // of the drawing, in units that the page stretches to its own width and height
constexpr size_t kMaxDots = 60;    // more would touch each other
constexpr double kLogFrom = 30.0;  // largest / least from which a linear axis shows little of the least

std::string Print(const char* format, double value) {
    std::array<char, 64> text = {};
    std::snprintf(text.data(), text.size(), format, value);
    return text.data();
}

/// "3e-4" for "3e-04", "1.5e-4" for "1.50e-04"
std::string Scientific(double value) {
    std::string text = Print("%.2e", value);
    const size_t e = text.find('e');
    std::string digits = text.substr(0, e);
    digits.erase(digits.find_last_not_of('0') + 1);
    digits.erase(digits.find_last_not_of('.') + 1);
    return StrCat(digits, "e", std::atoi(text.c_str() + e + 1));
}

/// Short, and exact for a tick: 12k, 1.5M, 0.25, 3e-4.
std::string TickText(double value) {
    const double size = std::abs(value);
    if (size == 0.0) {
        return "0";
    }
    if (size < 1e-2 || size >= 1e12) {
        return Scientific(value);
    }
    for (const auto& [least, name] : {std::pair{1e9, "G"}, std::pair{1e6, "M"}, std::pair{1e4, "k"}}) {
        if (size >= least) {
            const double unit = least == 1e4 ? 1e3 : least;
            return Print("%.6g", value / unit) + name;
        }
    }
    return Print("%.6g", value);
}

/// An axis from low to high, and where it has ticks.
struct Axis {
    double low = 0.0;
    double high = 1.0;
    bool is_log = false;
    std::vector<double> ticks = {};

    /// 0 at low, 1 at high.
    double Place(double value) const {
        return is_log ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                      : (value - low) / (high - low);
    }
};

/// The least of 1, 2, 5 times a power of ten that is no less.
double NiceStep(double least) {
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * power >= least * (1.0 - 1e-9)) {
            return factor * power;
        }
    }
    return 10.0 * power;
}

void AddLinearTicks(double step, Axis* axis) {
    // By count, and only so many: a range of a few last bits has no room for steps.
    const double first = std::ceil(axis->low / step - 1e-9);
    for (int i = 0; i < 12 && (first + i) * step <= axis->high + 1e-9 * step; ++i) {
        axis->ticks.push_back((first + i) * step);
    }
}

void AddLogTicks(Axis* axis) {
    const double decades = std::log10(axis->high) - std::log10(axis->low);
    const bool is_wide = decades > 4.0;
    const double every = std::max(1.0, std::ceil(decades / 8.0));
    for (double power = std::floor(std::log10(axis->low)); power <= std::log10(axis->high); power += every) {
        for (const double factor : {1.0, 2.0, 5.0}) {
            const double tick = factor * std::pow(10.0, power);
            if (axis->low <= tick && tick <= axis->high && (factor == 1.0 || !is_wide)) {
                axis->ticks.push_back(tick);
            }
        }
    }
}

Axis ValueAxis(const Chart& chart) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (const Chart::Series& series : chart.series) {
        for (const Curve::Bucket& bucket : series.curve->buckets()) {
            if (bucket.num_values > 0) {
                low = std::min(low, bucket.min);
                high = std::max(high, bucket.max);
            }
        }
    }
    Axis axis = {.low = low, .high = high};
    axis.is_log = chart.may_be_log && low > 0.0 && high / low > kLogFrom;
    if (axis.is_log) {
        axis.low /= 1.1;
        axis.high *= 1.1;
        AddLogTicks(&axis);
        return axis;
    }
    if (chart.from_zero && low > 0.0) {
        axis.low = 0.0;
    }
    if (high - axis.low <= 1e-6 * std::abs(high)) {
        const double margin = high == 0.0 ? 1.0 : 0.05 * std::abs(high);
        axis.low -= margin;
        axis.high += margin;
    }
    const double step = NiceStep((axis.high - axis.low) / 5.0);
    const double margin = 0.04 * (axis.high - axis.low);
    axis.low -= axis.low == 0.0 ? 0.0 : margin;
    axis.high += margin;
    AddLinearTicks(step, &axis);
    return axis;
}

Axis StepAxis(const Chart& chart) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (const Chart::Series& series : chart.series) {
        if (!series.curve->buckets().empty()) {
            low = std::min(low, static_cast<double>(series.curve->buckets().front().first_step));
            high = std::max(high, static_cast<double>(series.curve->buckets().back().last_step));
        }
    }
    Axis axis = {.low = low, .high = high};
    if (low == high) {  // one step: in the middle
        axis.low -= 1.0;
        axis.high += 1.0;
    }
    AddLinearTicks(std::max(1.0, NiceStep((axis.high - axis.low) / 6.0)), &axis);
    return axis;
}

class Drawing {
 public:
    explicit Drawing(const Chart& chart) : chart_(chart), x_(StepAxis(chart)), y_(ValueAxis(chart)) {}

    std::string Draw() const {
        std::string html = "<figure><figcaption><b>" + MarkupEscape(chart_.title) + "</b>";
        const std::string scale = y_.is_log ? (chart_.unit.empty() ? "log scale" : ", log scale") : "";
        html += chart_.unit.empty() && scale.empty() ? "" : " <small>" + MarkupEscape(chart_.unit + scale) + "</small>";
        for (size_t i = 0; chart_.series.size() > 1 && i < chart_.series.size(); ++i) {
            html += StrCat(" <span class=\"key s", i, "\">", MarkupEscape(chart_.series[i].name), "</span>");
        }
        for (const Chart::Series& series : chart_.series) {
            const int64_t count = series.curve->num_not_finite();
            html += count == 0 ? "" : StrCat(" <small class=\"bad\">", count, " not finite</small>");
        }
        html += StrCat("</figcaption>\n<div class=\"plot\" data-x=\"[", x_.low, ",", x_.high, "]\" data-series=\"",
                       MarkupEscape(Data()), "\">\n<svg viewBox=\"0 0 ", kSide, " ", kSide,
                       "\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\n");
        for (const double tick : y_.ticks) {
            html += StrCat("<path class=\"grid\" d=\"M0 ", Y(tick), "H", kSide, "\"/>\n");
        }
        for (size_t i = 0; i < chart_.series.size(); ++i) {
            html += Lines(i);
        }
        html += "</svg>\n";
        for (const double tick : y_.ticks) {
            html += StrCat("<i class=\"y\" style=\"top:", Print("%.2f", 100.0 * (1.0 - y_.Place(tick))), "%\">",
                           TickText(tick), "</i>\n");
        }
        for (size_t i = 0; i < x_.ticks.size(); ++i) {
            html += StrCat("<i class=\"x", i % 2 == 1 ? " odd" : "",
                           "\" style=\"left:", Print("%.2f", 100.0 * x_.Place(x_.ticks[i])), "%\">",
                           TickText(x_.ticks[i]), "</i>\n");
        }
        return html + "<i class=\"xname\">step</i>\n</div></figure>\n";
    }

 private:
    std::string X(const Curve::Bucket& bucket) const {
        const double middle = (static_cast<double>(bucket.first_step) + static_cast<double>(bucket.last_step)) / 2.0;
        return Print("%.1f", kSide * x_.Place(middle));
    }
    std::string Y(double value) const { return Print("%.1f", kSide * (1.0 - y_.Place(value))); }

    /// The band below the line below the dots. A bucket without a finite value ends a stretch of them.
    std::string Lines(size_t index) const {
        const Chart::Series& series = chart_.series[index];
        std::string band;
        std::string line;
        std::string dots;
        std::string lower_edge;  // of the band of this stretch, from right to left
        const auto close = [&] {
            band += lower_edge.empty() ? "" : lower_edge + "Z";
            lower_edge.clear();
        };
        for (const Curve::Bucket& bucket : series.curve->buckets()) {
            if (bucket.num_values == 0) {
                close();
                continue;
            }
            const char* command = lower_edge.empty() ? "M" : "L";
            const std::string point = StrCat(X(bucket), " ", Y(bucket.Mean()));
            band += StrCat(command, X(bucket), " ", Y(bucket.max));
            line += command + point + (lower_edge.empty() ? "h0" : "");  // a stretch of one is a dot
            dots += StrCat("M", point, "h0");
            lower_edge = StrCat("L", X(bucket), " ", Y(bucket.min), lower_edge);
        }
        close();
        return StrCat("<path class=\"band s", index, "\" d=\"", band, "\"/>\n<path class=\"line s", index, "\" d=\"",
                      line, "\"/>\n",
                      series.curve->buckets().size() <= kMaxDots
                          ? StrCat("<path class=\"dots s", index, "\" d=\"", dots, "\"/>\n")
                          : "");
    }

    /// JSON: by series [name, [[first step, last step, mean, least, largest], ...]]
    std::string Data() const {
        std::string json;
        for (const Chart::Series& series : chart_.series) {
            std::string points;
            for (const Curve::Bucket& bucket : series.curve->buckets()) {
                points += StrCat(points.empty() ? "[" : ",[", bucket.first_step, ",", bucket.last_step);
                for (const double value : {bucket.Mean(), bucket.min, bucket.max}) {
                    points += bucket.num_values > 0 ? "," + Print("%.5g", value) : "";
                }
                points += "]";
            }
            json += StrCat(json.empty() ? "[" : ",", "[\"", series.name, "\",[", points, "]]");
        }
        return json + "]";
    }

    const Chart& chart_;
    Axis x_;
    Axis y_;
};

}  // namespace

std::string ChartHtml(const Chart& chart) {
    const bool has_value = std::any_of(chart.series.begin(), chart.series.end(),
                                       [](const Chart::Series& series) { return series.curve->last().has_value(); });
    return has_value ? Drawing(chart).Draw() : "";
}

}  // namespace infini_train
