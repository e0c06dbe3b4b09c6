#include "example/tools/tokenize_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace infini_train {
namespace {

constexpr std::chrono::milliseconds kInterval(200);
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

TokenizeProgress::TokenizeProgress(uint64_t total_bytes)
    : total_bytes_(total_bytes), is_terminal_(isatty(STDERR_FILENO) == 1) {}

TokenizeProgress::~TokenizeProgress() {
    if (has_line_) {
        std::fputs(kClearLine, stderr);
    }
}

void TokenizeProgress::Update(uint64_t num_bytes, int64_t num_tokens) {
    const Clock::time_point now = Clock::now();
    if (!is_terminal_ || now < next_) {
        return;
    }
    next_ = now + kInterval;
    const double megabytes = static_cast<double>(num_bytes) * 1e-6;
    const double total_megabytes = static_cast<double>(total_bytes_) * 1e-6;
    const double seconds = std::max(std::chrono::duration<double>(now - start_).count(), 1e-3);
    std::fprintf(stderr, "%s%.0f of %.0f MB (%.0f %%), %.1f MB/s, %lld tokens", kClearLine, megabytes, total_megabytes,
                 100.0 * megabytes / std::max(total_megabytes, megabytes), megabytes / seconds,
                 static_cast<long long>(num_tokens));
    std::fflush(stderr);
    has_line_ = true;
}

}  // namespace infini_train
