#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>

namespace infini_train::comm {

/// Why a run fails, as all threads of one process see it: the first reason counts. Thread-safe.
class NcclFailure {
 public:
    /// True for the first.
    bool Set(const std::string& why);
    bool is_set() const { return is_set_.load(std::memory_order_acquire); }
    /// Empty while there is none.
    std::string text() const;
    /// The Error of this rank of the world.
    void ThrowIfSet(int rank) const;
    /// Returns when there is one, or after that time; whether there is.
    bool WaitFor(double limit_s) const;

 private:
    std::atomic<bool> is_set_ = false;  // so that who only asks takes no lock
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::string text_;
};

}  // namespace infini_train::comm
