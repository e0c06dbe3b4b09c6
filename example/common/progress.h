#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "example/common/metrics.h"
#include "infini_train/include/comm/mesh.h"

namespace infini_train {

/// How long the steps that are left will take, from the median time of the last ones: one step that the machine held up
/// changes nothing. Only what the steps themselves took counts, so neither validation nor saving does.
class TimeLeft {
 public:
    void Add(double step_ms);
    /// 0 before the first step.
    double Seconds(int64_t num_steps) const;

 private:
    std::vector<double> steps_ms_;  // the last ones, a ring
    size_t num_seen_ = 0;
};

/// h:mm:ss, to the nearest second; hours go on beyond 23.
std::string ClockText(double seconds);

/// "step 7/100 | loss 3.2105 | 8125 tok/s | ETA 0:12:09", without the fields at its end that do not fit. At most
/// num_columns - 1 characters: a terminal that is full to its last column may begin a new line.
std::string ProgressText(const StepMetrics& metrics, int64_t num_steps, double seconds_left, int num_columns);

/// What a run tells of its steps on stdout. On a terminal one line that is drawn again in its place; elsewhere, and on
/// one that cannot go back in a line (TERM=dumb), a StepLine a step.
class ProgressLine {
 public:
    struct Options {
        int64_t num_steps = 0;  // the last one's number
        comm::MeshShape mesh = {};
        std::FILE* out = stdout;
        std::chrono::milliseconds least_interval{100};  // of drawing: more often nobody can read it
    };

    explicit ProgressLine(const Options& options);
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    /// Leaves the last line where it is, and the cursor below it.
    ~ProgressLine();

    void Show(const StepMetrics& metrics);
    /// A line that stays, above the progress line where there is one.
    void Print(const std::string& line);
    /// Before anybody else writes to stdout: it begins where the progress line was, which comes back with the next
    /// step.
    void Clear();

 private:
    Options options_;
    bool redraws_ = false;
    bool is_drawn_ = false;
    std::chrono::steady_clock::time_point drawn_at_ = {};
    TimeLeft time_left_;
};

}  // namespace infini_train
