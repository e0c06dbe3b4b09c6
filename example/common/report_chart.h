#pragma once

#include <string>
#include <vector>

#include "example/common/report_history.h"

namespace infini_train {

struct Chart {
    struct Series {
        std::string name = {};
        const Curve* curve = nullptr;
    };
    std::string title = {};
    std::string unit = {};
    std::vector<Series> series = {};
    bool from_zero = false;   // the axis begins at 0
    bool may_be_log = false;  // where the values are positive and far apart
};

/// A figure: the mean of each bucket as a line on a band from its least to its largest value, with axes, and its values
/// in an attribute for the page's script, which shows those under the pointer. Any width; the page's style sheet has
/// the rest. Empty where no curve has a finite value.
std::string ChartHtml(const Chart& chart);

}  // namespace infini_train
