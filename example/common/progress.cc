#include "example/common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "infini_train/include/common/env.h"

namespace infini_train {
namespace {

constexpr size_t kRecentSteps = 33;  // enough to smooth, few enough to follow a change of speed
constexpr int kUnknownColumns = 80;

int NumColumns(std::FILE* terminal) {
    winsize size = {};
    return ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknownColumns;
}

}  // namespace

void TimeLeft::Add(double step_ms) {
    if (steps_ms_.size() < kRecentSteps) {
        steps_ms_.push_back(step_ms);
    } else {
        steps_ms_[num_seen_ % kRecentSteps] = step_ms;
    }
    ++num_seen_;
}

double TimeLeft::Seconds(int64_t num_steps) const {
    if (steps_ms_.empty()) {
        return 0.0;
    }
    // While there are few, the first is left out: it made buffers and warmed caches.
    std::vector<double> sorted(steps_ms_.begin() + (num_seen_ > 1 && num_seen_ <= kRecentSteps ? 1 : 0),
                               steps_ms_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return static_cast<double>(num_steps) * *middle / 1e3;
}

std::string ClockText(double seconds) {
    constexpr double kMostSeconds = 3.6e9;  // a million hours
    if (!(seconds < kMostSeconds)) {
        return "?";
    }
    const auto whole = static_cast<long long>(std::llround(std::max(0.0, seconds)));
    std::array<char, 32> text = {};
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    return text.data();
}

std::string ProgressText(const StepMetrics& metrics, int64_t num_steps, double seconds_left, int num_columns) {
    std::array<std::array<char, 64>, 4> fields = {};
    const auto print = [&fields](size_t field, const char* format, auto... values) {
        std::snprintf(fields[field].data(), fields[field].size(), format, values...);
    };
    print(0, "step %lld/%lld", static_cast<long long>(metrics.step), static_cast<long long>(num_steps));
    print(1, "loss %.4f", static_cast<double>(metrics.loss));
    print(2, "%.0f tok/s", metrics.tokens_per_s);
    print(3, "ETA %s", ClockText(seconds_left).c_str());
    const auto room = static_cast<size_t>(std::max(0, num_columns - 1));
    std::string text;
    for (const auto& field : fields) {
        const std::string next = (text.empty() ? "" : " | ") + std::string(field.data());
        if (!text.empty() && text.size() + next.size() > room) {
            break;
        }
        text += next;
    }
    return text.substr(0, room);
}

// mpirun gives its first process a terminal that it reads itself, even where its own output goes to a file.
ProgressLine::ProgressLine(const Options& options)
    : options_(options),
      redraws_(isatty(fileno(options.out)) == 1 && ReadEnv("TERM").value_or("dumb") != "dumb" &&
               !ReadEnv("OMPI_COMM_WORLD_RANK").has_value()) {}

ProgressLine::~ProgressLine() {
    if (is_drawn_) {
        std::fputc('\n', options_.out);
        std::fflush(options_.out);
    }
}

void ProgressLine::Show(const StepMetrics& metrics) {
    if (!redraws_) {
        Print(StepLine(metrics, options_.mesh, options_.num_steps));
        return;
    }
    time_left_.Add(metrics.ms);
    const auto now = std::chrono::steady_clock::now();
    const bool is_last = metrics.step >= options_.num_steps;
    if (is_drawn_ && !is_last && now - drawn_at_ < options_.least_interval) {
        return;
    }
    const std::string text = ProgressText(
        metrics, options_.num_steps, time_left_.Seconds(options_.num_steps - metrics.step), NumColumns(options_.out));
    std::fprintf(options_.out, "\r%s\x1b[K", text.c_str());  // then what is left of a longer line is wiped
    std::fflush(options_.out);
    is_drawn_ = true;
    drawn_at_ = now;
}

void ProgressLine::Print(const std::string& line) {
    Clear();
    std::fprintf(options_.out, "%s\n", line.c_str());
    std::fflush(options_.out);
}

void ProgressLine::Clear() {
    if (is_drawn_) {
        std::fputs("\r\x1b[K", options_.out);
        std::fflush(options_.out);
        is_drawn_ = false;
    }
}

}  // namespace infini_train
