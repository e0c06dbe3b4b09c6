#include "example/common/report.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "example/common/progress.h"
#include "example/common/report_chart.h"
#include "example/common/report_page.h"
#include "example/common/text_file.h"
#include "infini_train/include/common/markup_escape.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

// What a page can hold and a reader will look at.
constexpr size_t kMaxRanks = 64;
constexpr size_t kMaxSamples = 12;
constexpr size_t kMaxSampleBytes = 10000;
constexpr size_t kMaxNotes = 20;
constexpr size_t kMaxTimelineBytes = size_t{4} << 20;

std::string Fixed(double value, int num_decimals) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.*f", num_decimals, value);
    return text;
}

std::string Size(int64_t bytes) {
    const double mib = static_cast<double>(bytes) / 1048576.0;
    return mib < 10240.0 ? Fixed(mib, 1) + " MiB" : Fixed(mib / 1024.0, 2) + " GiB";
}

std::string LeftOut(size_t count) {
    return count == 0 ? "" : StrCat("<p><small>", count, " more are left out.</small></p>\n");
}

std::string Notes(const std::vector<std::string>& notes) {
    if (notes.empty()) {
        return "";
    }
    std::string html = "<ul class=\"notes\">\n";
    for (size_t i = 0; i < std::min(notes.size(), kMaxNotes); ++i) {
        html += "<li>" + MarkupEscape(notes[i]) + "</li>\n";
    }
    return html + "</ul>\n" + LeftOut(notes.size() - std::min(notes.size(), kMaxNotes));
}

std::string Tiles(const RunHistory& history) {
    if (history.num_steps() == 0) {
        return "";
    }
    std::string html = "<dl class=\"tiles\">\n";
    const auto add = [&html](std::string_view name, const std::string& value, const std::string& remark = "") {
        html += StrCat("<div><dt>", name, "</dt><dd>", value, remark.empty() ? "" : " <small>" + remark + "</small>",
                       "</dd></div>\n");
    };
    add("steps", StrCat(history.num_steps()));
    if (history.loss().last()) {
        add("last loss", Fixed(*history.loss().last(), 4));
    }
    if (history.val_loss().last()) {
        add("last validation loss", Fixed(*history.val_loss().last(), 4));
        add("best validation loss", Fixed(static_cast<double>(history.best()->val_loss), 4),
            StrCat("step ", history.best()->step));
    }
    if (history.seconds() > 0.0) {
        add("time in steps", ClockText(history.seconds()));
        add("mean speed", Fixed(history.num_tokens() / history.seconds(), 0), "tokens/s");
    }
    if (history.mfu() > 0.0) {
        add("MFU of the last step", Fixed(100.0 * history.mfu(), 1), "%");
    }
    add("peak memory", Size(history.peak_bytes()), "of a rank");
    return html + "</dl>\n";
}

std::string Charts(const RunHistory& history) {
    std::vector<Chart::Series> losses = {{.name = "training", .curve = &history.loss()}};
    if (history.val_loss().last()) {
        losses.push_back({.name = "validation", .curve = &history.val_loss()});
    }
    const std::string charts =
        ChartHtml({.title = "Loss", .unit = "nats a token", .series = losses, .may_be_log = true}) +
        ChartHtml({.title = "Gradient norm",
                   .unit = "global L2, before clipping",
                   .series = {{.name = "norm", .curve = &history.grad_norm()}},
                   .may_be_log = true}) +
        ChartHtml({.title = "Learning rate", .series = {{.name = "rate", .curve = &history.lr()}}, .from_zero = true}) +
        ChartHtml({.title = "Speed",
                   .unit = "tokens/s",
                   .series = {{.name = "tokens/s", .curve = &history.tokens_per_s()}},
                   .from_zero = true});
    return charts.empty() ? "" : "<h2>Curves</h2>\n<div class=\"charts\">\n" + charts + "</div>\n";
}

std::string Timeline(const std::string& svg) {
    if (svg.empty()) {
        return "";
    }
    const std::string heading = "<h2>Timeline of the last step</h2>\n";
    return svg.size() > kMaxTimelineBytes
               ? heading + "<p>" + Size(static_cast<int64_t>(svg.size())) +
                     " are too large for this page; --timeline FILE.svg writes it to a file of its own.</p>\n"
               : heading + "<div class=\"scroll\">\n" + svg + "</div>\n";
}

std::string Bar(int series, int64_t bytes, int64_t most) {
    const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(most, 1));
    return StrCat("<b class=\"s", series, "\" style=\"width:", Fixed(percent, 1), "%\"></b>");
}

std::string Memory(const std::vector<ReportData::RankMemory>& ranks) {
    if (ranks.empty()) {
        return "";
    }
    int64_t most = 0;
    for (const ReportData::RankMemory& rank : ranks) {
        most = std::max({most, rank.measured_bytes, rank.predicted_bytes});
    }
    std::string html =
        "<h2>Peak memory by rank <span class=\"key s0\">measured</span> <span class=\"key s1\">predicted</span></h2>\n"
        "<div class=\"bars\">\n";
    for (size_t i = 0; i < std::min(ranks.size(), kMaxRanks); ++i) {
        const auto& [predicted, measured] = ranks[i];
        const double error =
            measured == 0 ? 0.0 : 100.0 * (static_cast<double>(predicted) / static_cast<double>(measured) - 1.0);
        html += StrCat("<div>rank ", i, "</div><div>", Bar(0, measured, most), Bar(1, predicted, most), "</div><span>",
                       Size(measured), ", predicted ", Size(predicted), " (", error < 0.0 ? "" : "+", Fixed(error, 1),
                       " %)</span>\n");
    }
    return html + "</div>\n" + LeftOut(ranks.size() - std::min(ranks.size(), kMaxRanks));
}

std::string Samples(const std::vector<ReportData::Sample>& samples) {
    if (samples.empty()) {
        return "";
    }
    // The newest first: they are what the model can do now.
    std::string html = "<h2>Texts of the model</h2>\n";
    const size_t count = std::min(samples.size(), kMaxSamples);
    for (auto sample = samples.rbegin(); sample != samples.rbegin() + static_cast<std::ptrdiff_t>(count); ++sample) {
        // After <pre> a browser drops one line end.
        html += StrCat("<small>step ", sample->step, "</small>\n<pre>\n",
                       MarkupEscape(sample->text.substr(0, kMaxSampleBytes)),
                       sample->text.size() > kMaxSampleBytes ? " [...]" : "", "</pre>\n");
    }
    return html + LeftOut(samples.size() - count);
}

std::string Configuration(const std::vector<ReportSection>& sections) {
    if (sections.empty()) {
        return "";
    }
    std::string html = "<h2>Configuration</h2>\n<div class=\"sections\">\n";
    for (const ReportSection& section : sections) {
        html += section.is_folded ? "<details><summary>" + MarkupEscape(section.title) + "</summary>"
                                  : "<section><h3>" + MarkupEscape(section.title) + "</h3>";
        html += "<table>\n";
        for (const auto& [name, value] : section.rows) {
            html += "<tr><td class=\"name\">" + MarkupEscape(name) + "</td><td>" + MarkupEscape(value) + "</td></tr>\n";
        }
        html += section.is_folded ? "</table></details>\n" : "</table></section>\n";
    }
    return html + "</div>\n";
}

}  // namespace

ReportSection SectionOfLines(const std::string& title, const std::string& lines, bool is_folded) {
    ReportSection section = {.title = title, .is_folded = is_folded};
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
        const size_t equals = line.find('=');
        section.rows.emplace_back(line.substr(0, equals), equals == std::string::npos ? "" : line.substr(equals + 1));
    }
    return section;
}

std::string ReportHtml(const ReportData& data) {
    // The policy holds the page to its word: whatever is in it, nothing is fetched.
    return StrCat(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
        MarkupEscape(data.title), "</title>\n<style>", kReportStyle, "</style>\n</head>\n<body>\n<h1>",
        MarkupEscape(data.title), "</h1>\n", Notes(data.notes), Tiles(data.history), Charts(data.history),
        Timeline(data.timeline_svg), Memory(data.memory), Samples(data.samples), Configuration(data.configuration),
        "<script>", kReportScript, "</script>\n</body>\n</html>\n");
}

void WriteReport(const std::string& path, const ReportData& data) {
    WriteTextFile("--report", path, ReportHtml(data));
}

}  // namespace infini_train
