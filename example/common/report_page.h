#pragma once

#include <string_view>

namespace infini_train {

/// The style sheet and the script of a report. The script shows the values of a chart under the pointer; without it the
/// page is complete but for these.
extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace infini_train
