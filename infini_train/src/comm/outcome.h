#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "infini_train/include/common/error.h"

namespace infini_train::comm {

/// "[rank 2] WHAT": what waits for other ranks names its own already, which is not said twice.
std::string RankErrorText(int rank, std::string_view what);

/// How the ranks of a process fare: the first error of the run, and how many have ended. Thread-safe.
class Outcome {
 public:
    explicit Outcome(int num_ranks) : num_ranks_(num_ranks) {}

    /// True for the first error.
    bool RankFailed(int rank, std::string_view what, Error::Kind kind);
    /// What another process, or the watchdog of the connections, found.
    bool RunFailed(const std::string& why);
    void RankEnded();
    /// Waits for all ranks to end, for no more than grace_s from the first error on. False: some have not.
    bool WaitForAll(double grace_s);
    std::optional<Error> FirstError() const;

 private:
    bool SetFirst(const Error& error);

    int num_ranks_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Error> first_error_;
    int num_ended_ = 0;
};

}  // namespace infini_train::comm
