#pragma once

namespace infini_train::autograd {

/// Whether operations of this thread are recorded for a backward pass. On at the start of a thread.
class GradMode {
 public:
    static bool is_enabled();
    static void set_enabled(bool enabled);
};

/// No recording while it lives: evaluation and generation.
class NoGradGuard {
 public:
    NoGradGuard() : before_(GradMode::is_enabled()) { GradMode::set_enabled(false); }
    ~NoGradGuard() { GradMode::set_enabled(before_); }
    NoGradGuard(const NoGradGuard&) = delete;
    NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
    bool before_;
};

}  // namespace infini_train::autograd
