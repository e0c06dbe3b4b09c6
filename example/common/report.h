#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "example/common/report_history.h"

namespace infini_train {

struct ReportSection {
    std::string title = {};
    std::vector<std::pair<std::string, std::string>> rows = {};  // name, value
    bool is_folded = false;                                      // until the reader opens it
};

/// All that a report shows. What is empty has no place on the page.
struct ReportData {
    struct RankMemory {
        int64_t predicted_bytes = 0;
        int64_t measured_bytes = 0;
    };
    struct Sample {
        int64_t step = 0;
        std::string text = {};
    };

    std::string title = {};
    std::vector<ReportSection> configuration = {};
    std::vector<std::string> notes =
        {};  // what the reader should know first: why the run ended early, spikes of the loss
    RunHistory history = {};
    std::string timeline_svg = {};        // of nn::parallel::TimelineSvg
    std::vector<RankMemory> memory = {};  // by rank
    std::vector<Sample> samples = {};
};

/// Lines "name=value" as rows; those of values in their default are the caller's to leave out.
ReportSection SectionOfLines(const std::string& title, const std::string& lines, bool is_folded);

/// The page: one file that needs no network and no other file, for wide and narrow, light and dark screens. All texts
/// but timeline_svg are escaped.
std::string ReportHtml(const ReportData& data);

/// --report. Throws Error when the file cannot be written.
void WriteReport(const std::string& path, const ReportData& data);

}  // namespace infini_train
