#pragma once

#include <chrono>
#include <cstdint>

namespace infini_train {

/// A line on stderr that says how far the program is, a few times a second, where stderr is a terminal; else nothing.
class TokenizeProgress {
 public:
    explicit TokenizeProgress(uint64_t total_bytes);
    TokenizeProgress(const TokenizeProgress&) = delete;
    TokenizeProgress& operator=(const TokenizeProgress&) = delete;
    /// Clears the line.
    ~TokenizeProgress();

    void Update(uint64_t num_bytes, int64_t num_tokens);

 private:
    using Clock = std::chrono::steady_clock;

    uint64_t total_bytes_;
    bool is_terminal_;
    bool has_line_ = false;
    Clock::time_point start_ = Clock::now();
    Clock::time_point next_ = start_;
};

}  // namespace infini_train
