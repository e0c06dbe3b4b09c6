#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "infini_train/src/comm/nccl/nccl_communicator.h"
#include "infini_train/src/comm/nccl/nccl_failure.h"

namespace infini_train::comm {

/// Looks after all communicators of a process, from a thread of its own: what NCCL reports, and what takes longer than
/// the time-out, fails the run. After a failure, its own or one from outside, it aborts all of them, so that whatever
/// waits on a GPU or for one goes on and throws. If even that does not end it prints the reason and ends the process.
class NcclWatchdog {
 public:
    /// on_failure is called on the watchdog's thread, for what it has found itself.
    NcclWatchdog(double timeout_s, std::function<void(const std::string& why)> on_failure);
    ~NcclWatchdog();
    NcclWatchdog(const NcclWatchdog&) = delete;
    NcclWatchdog& operator=(const NcclWatchdog&) = delete;

    /// A communicator for a rank of the world that will be looked after; with: as in its Options; ranks: who takes
    /// part, this rank or not. Throws Error after a failure.
    std::shared_ptr<NcclCommunicator> Make(int rank, int gpu_index, const std::string& with, std::vector<int> ranks);
    void Fail(const std::string& why) { failure_->Set(why); }
    void ThrowIfFailed(int rank) const { failure_->ThrowIfSet(rank); }

    /// The end of all communicators, when all ranks of this process have ended. Without a failure it waits for the
    /// other processes to come here as well. Once.
    void Close();

 private:
    void Run();
    void Report(const std::string& why);
    void WarnOfSlowWaits(NcclCommunicator::Clock::time_point now);
    std::vector<std::shared_ptr<NcclCommunicator>> Communicators();
    void AbortAll();
    /// False when a failure or the time-out came before the end of all work.
    bool FinalizeAll(const std::vector<std::shared_ptr<NcclCommunicator>>& communicators);

    double timeout_s_;
    std::function<void(const std::string& why)> on_failure_;
    std::shared_ptr<NcclFailure> failure_;
    std::mutex mutex_;
    std::vector<std::shared_ptr<NcclCommunicator>> communicators_;
    std::atomic<bool> is_closing_ = false;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

}  // namespace infini_train::comm
