#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "infini_train/src/comm/slow_wait.h"

namespace infini_train::comm {

/// What the rank threads of one process share. All of comm/local lives under this one mutex: what is done under it is
/// moving pointers. A rank waits for one thing at a time, so each has one condition variable for whatever it waits for.
/// Ranks are those of the world.
class LocalWorld {
 public:
    LocalWorld(int num_ranks, double timeout_s);

    std::unique_lock<std::mutex> Lock() { return std::unique_lock(mutex_); }

    // --- with the lock held
    /// Lets a rank look again at what it waits for.
    void Wake(int rank) { conditions_[static_cast<size_t>(rank)].notify_all(); }
    /// Returns when ready() holds. Throws WaitError after the time-out, and at once when a rank has failed; warns of a
    /// slow wait. awaited() are the ranks that it is for, what_for() says it with their names.
    void Wait(std::unique_lock<std::mutex>* lock, int rank, const std::function<bool()>& ready,
              const std::function<std::vector<int>()>& awaited, const std::function<std::string()>& what_for);
    /// The same without an end and without a word: for what no rank's failure can keep from happening.
    void WaitForSure(std::unique_lock<std::mutex>* lock, int rank, const std::function<bool()>& ready);

    // --- without it
    /// Ends every wait. The first reason is the one that the errors give: "rank 2 failed".
    void Fail(const std::string& why);
    void ThrowIfFailed(int rank);
    /// Which GPU a rank has; -1 at first, and where it has none.
    void SetGpu(int rank, int index);
    int GpuOf(int rank);
    /// For waits of these ranks elsewhere, too.
    WaitBoard& waits() { return waits_; }

 private:
    static void Warn(std::unique_lock<std::mutex>* lock, const std::string& text);

    double timeout_s_;
    WaitBoard waits_;
    std::mutex mutex_;
    std::vector<std::condition_variable> conditions_;  // by rank
    std::string failure_;                              // empty: none
    std::vector<int> gpus_;                            // by rank
};

}  // namespace infini_train::comm
