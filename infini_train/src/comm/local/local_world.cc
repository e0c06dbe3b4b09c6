#include "infini_train/src/comm/local/local_world.h"

#include <algorithm>
#include <chrono>

#include "glog/logging.h"

#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/longest_wait.h"

namespace infini_train::comm {

LocalWorld::LocalWorld(int num_ranks, double timeout_s)
    : timeout_s_(std::min(timeout_s, kLongestWaitS)),
      waits_(timeout_s_),
      conditions_(static_cast<size_t>(num_ranks)),
      gpus_(static_cast<size_t>(num_ranks), -1) {
    CHECK_GT(timeout_s, 0.0);
}

void LocalWorld::Wait(std::unique_lock<std::mutex>* lock, int rank, const std::function<bool()>& ready,
                      const std::function<std::vector<int>()>& awaited, const std::function<std::string()>& what_for) {
    if (ready()) {
        return;
    }
    WaitBoard::Wait wait(&waits_, rank, awaited());
    const auto timeout =
        std::chrono::duration_cast<WaitBoard::Clock::duration>(std::chrono::duration<double>(timeout_s_));
    const WaitBoard::Clock::time_point end = wait.since() + timeout;
    const auto ready_or_failed = [&] { return ready() || !failure_.empty(); };
    std::condition_variable& condition = conditions_[static_cast<size_t>(rank)];
    while (!condition.wait_until(*lock, std::min(end, wait.due()), ready_or_failed)) {
        const WaitBoard::Clock::time_point now = WaitBoard::Clock::now();
        if (now >= end) {
            break;
        }
        if (now >= wait.due()) {
            Warn(lock, wait.Warning(now, {.ranks = awaited(), .text = what_for()}));
        }
    }
    // What is there is there, even when a rank has failed since: where ranks disagree, all of them say so.
    if (!ready()) {
        throw WaitError({.rank = rank, .waited_for = what_for(), .failure = failure_, .timeout_s = timeout_s_});
    }
}

void LocalWorld::Warn(std::unique_lock<std::mutex>* lock, const std::string& text) {
    if (!text.empty()) {
        lock->unlock();  // who reads the log may be slow
        LOG(WARNING) << text;
        lock->lock();
    }
}

void LocalWorld::WaitForSure(std::unique_lock<std::mutex>* lock, int rank, const std::function<bool()>& ready) {
    const WaitBoard::Wait wait(&waits_, rank, {});
    conditions_[static_cast<size_t>(rank)].wait(*lock, ready);
}

void LocalWorld::ThrowIfFailed(int rank) {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) {
        throw Error({.where = StrCat("rank ", rank), .what = failure_, .kind = Error::Kind::kRuntime});
    }
}

void LocalWorld::SetGpu(int rank, int index) {
    const std::lock_guard lock(mutex_);
    gpus_[static_cast<size_t>(rank)] = index;
}

int LocalWorld::GpuOf(int rank) {
    const std::lock_guard lock(mutex_);
    return gpus_[static_cast<size_t>(rank)];
}

void LocalWorld::Fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    failure_ = failure_.empty() ? why : failure_;
    for (std::condition_variable& condition : conditions_) {
        condition.notify_all();
    }
}

}  // namespace infini_train::comm
