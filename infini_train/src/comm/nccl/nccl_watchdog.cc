#include "infini_train/src/comm/nccl/nccl_watchdog.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <utility>

#include "glog/logging.h"

#include "infini_train/src/comm/longest_wait.h"

namespace infini_train::comm {
namespace {

using Clock = NcclCommunicator::Clock;
using CommunicatorList = std::vector<std::shared_ptr<NcclCommunicator>>;

constexpr double kPeriodS = 0.05;
// What may follow from another rank's end waits this long for its reason.
constexpr std::chrono::seconds kBetterReason(2);
// Longer than RunRanks gives the ranks to end, so that its error comes first.
constexpr double kAbortS = 15.0;
constexpr double kDestroyS = 60.0;

/// Calls a method of each, all at the same time: one of them may wait for another. False when it takes too long; then
/// the threads are left to themselves.
bool CallAll(const CommunicatorList& communicators, void (NcclCommunicator::*method)(), double limit_s) {
    struct Progress {
        std::mutex mutex;
        std::condition_variable changed;
        size_t num_left;
    };
    const auto progress = std::make_shared<Progress>();
    progress->num_left = communicators.size();
    for (const std::shared_ptr<NcclCommunicator>& communicator : communicators) {
        std::thread([communicator, method, progress] {
            (communicator.get()->*method)();
            const std::lock_guard lock(progress->mutex);
            --progress->num_left;
            progress->changed.notify_all();
        }).detach();
    }
    std::unique_lock lock(progress->mutex);
    return progress->changed.wait_for(lock, std::chrono::duration<double>(limit_s),
                                      [&] { return progress->num_left == 0; });
}

}  // namespace

NcclWatchdog::NcclWatchdog(double timeout_s, std::function<void(const std::string& why)> on_failure)
    : timeout_s_(std::min(timeout_s, kLongestWaitS)),
      on_failure_(std::move(on_failure)),
      failure_(std::make_shared<NcclFailure>()),
      thread_([this] { Run(); }) {}

NcclWatchdog::~NcclWatchdog() {
    CHECK(!thread_.joinable()) << "a watchdog that was not closed";
}

std::shared_ptr<NcclCommunicator> NcclWatchdog::Make(int rank, int gpu_index, const std::string& with,
                                                     std::vector<int> ranks) {
    std::erase(ranks, rank);
    const auto communicator = std::make_shared<NcclCommunicator>(NcclCommunicator::Options{.rank = rank,
                                                                                           .gpu_index = gpu_index,
                                                                                           .with = with,
                                                                                           .others = std::move(ranks),
                                                                                           .failure = failure_,
                                                                                           .timeout_s = timeout_s_});
    // A failure that comes before this is seen here, a later one finds it in the list.
    const std::lock_guard lock(mutex_);
    ThrowIfFailed(rank);
    communicators_.push_back(communicator);
    return communicator;
}

CommunicatorList NcclWatchdog::Communicators() {
    const std::lock_guard lock(mutex_);
    return communicators_;
}

void NcclWatchdog::Run() {
    pthread_setname_np(pthread_self(), "nccl watchdog");
    std::string suspicion;
    Clock::time_point suspected_at;
    while (!failure_->WaitFor(kPeriodS)) {
        if (stop_) {
            return;
        }
        if (is_closing_) {
            continue;  // other processes may be gone, and nobody waits for them
        }
        const Clock::time_point now = Clock::now();
        for (const std::shared_ptr<NcclCommunicator>& communicator : Communicators()) {
            const std::optional<NcclCommunicator::Finding> finding = communicator->Inspect(now);
            if (!finding.has_value()) {
                continue;
            }
            if (finding->is_certain) {
                Report(finding->text);
                break;
            }
            if (suspicion.empty()) {
                suspicion = finding->text;
                suspected_at = now;
            }
        }
        WarnOfSlowWaits(now);
        if (!suspicion.empty() && now - suspected_at > kBetterReason) {
            Report(suspicion);
        }
    }
    AbortAll();
}

void NcclWatchdog::Report(const std::string& why) {
    if (failure_->Set(why) && on_failure_) {
        on_failure_(why);
    }
}

/// A rank may wait for several things at a time here, a send among them: which rank keeps the others waiting shows less
/// clearly than elsewhere.
void NcclWatchdog::WarnOfSlowWaits(Clock::time_point now) {
    std::vector<Waiter> waiters;
    std::vector<std::pair<Waiter, std::string>> due;
    for (const std::shared_ptr<NcclCommunicator>& communicator : Communicators()) {
        if (std::optional<NcclCommunicator::Outstanding> found = communicator->FindOutstanding(now)) {
            waiters.push_back(found->waiter);
            if (!found->due_text.empty()) {
                due.emplace_back(std::move(found->waiter), std::move(found->due_text));
            }
        }
    }
    for (const auto& [waiter, text] : due) {
        if (Tells(waiter, waiters)) {
            LOG(WARNING) << text;
        }
    }
}

void NcclWatchdog::AbortAll() {
    if (!CallAll(Communicators(), &NcclCommunicator::Abort, kAbortS)) {
        std::fprintf(stderr, "%s\n", failure_->text().c_str());
        // Not exit: it would destroy what the ranks still use.
        _exit(1);
    }
}

bool NcclWatchdog::FinalizeAll(const CommunicatorList& communicators) {
    for (const std::shared_ptr<NcclCommunicator>& communicator : communicators) {
        communicator->Finalize();
    }
    const auto are_idle = [&] {
        return std::all_of(
            communicators.begin(), communicators.end(),
            [](const std::shared_ptr<NcclCommunicator>& communicator) { return communicator->IsIdle(); });
    };
    const Clock::time_point start = Clock::now();
    while (!are_idle()) {
        if (std::chrono::duration<double>(Clock::now() - start).count() > timeout_s_) {
            Fail("the other processes did not come to the end of NCCL in time");
        }
        if (failure_->WaitFor(0.001)) {
            return false;
        }
    }
    return !failure_->is_set();
}

void NcclWatchdog::Close() {
    is_closing_ = true;
    const CommunicatorList communicators = Communicators();
    if (!failure_->is_set() && FinalizeAll(communicators) &&
        !CallAll(communicators, &NcclCommunicator::Destroy, std::min(timeout_s_, kDestroyS))) {
        LOG(WARNING) << "NCCL did not end in time";
    }
    stop_ = true;
    thread_.join();
    const std::lock_guard lock(mutex_);
    communicators_.clear();
}

}  // namespace infini_train::comm
