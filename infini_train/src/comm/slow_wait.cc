#include "infini_train/src/comm/slow_wait.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kLeastSlowS = 1.0;
constexpr double kMostSlowS = 30.0;
constexpr double kSlowShareOfTimeout = 1.0 / 3.0;

bool IsBefore(const Waiter& a, const Waiter& b) {
    return std::pair(a.since, a.rank) < std::pair(b.since, b.rank);
}

bool IsWaiting(int rank, const std::vector<Waiter>& all) {
    return std::any_of(all.begin(), all.end(), [rank](const Waiter& waiter) { return waiter.rank == rank; });
}

}  // namespace

SlowWait::SlowWait(double timeout_s, Clock::time_point since)
    : since_(since),
      after_(std::chrono::duration_cast<Clock::duration>(
          Seconds(std::clamp(timeout_s * kSlowShareOfTimeout, kLeastSlowS, kMostSlowS)))) {}

void SlowWait::Told(Clock::time_point now) {
    // Once for all that were due, where this process stood still itself.
    do {
        after_ *= 2;
    } while (due() <= now);
}

std::string SlowWaitText(int rank, SlowWait::Clock::duration waited, const std::string& text) {
    return StrCat("[rank ", rank, "] has waited ", std::chrono::round<std::chrono::seconds>(waited).count(), " s for ",
                  text);
}

bool Tells(const Waiter& own, const std::vector<Waiter>& all) {
    const auto is_culprit = [&all](int rank) { return !IsWaiting(rank, all); };
    const bool has_culprit = std::any_of(all.begin(), all.end(), [&](const Waiter& waiter) {
        return std::any_of(waiter.awaited.begin(), waiter.awaited.end(), is_culprit);
    });
    if (!has_culprit) {  // they wait for each other
        return std::none_of(all.begin(), all.end(), [&own](const Waiter& waiter) { return IsBefore(waiter, own); });
    }
    return std::any_of(own.awaited.begin(), own.awaited.end(), [&](int rank) {
        return is_culprit(rank) && std::none_of(all.begin(), all.end(), [&](const Waiter& waiter) {
                   const bool waits_for_it =
                       std::find(waiter.awaited.begin(), waiter.awaited.end(), rank) != waiter.awaited.end();
                   return waits_for_it && IsBefore(waiter, own);
               });
    });
}

WaitBoard::Wait::Wait(WaitBoard* board, int rank, std::vector<int> awaited)
    : board_(board), rank_(rank), slow_(board->timeout_s_, Clock::now()) {
    const std::lock_guard lock(board_->mutex_);
    CHECK(!IsWaiting(rank, board_->waiters_)) << "rank " << rank << " waits twice at a time";
    board_->waiters_.push_back({.rank = rank, .since = slow_.since(), .awaited = std::move(awaited)});
}

WaitBoard::Wait::~Wait() {
    const std::lock_guard lock(board_->mutex_);
    std::erase_if(board_->waiters_, [this](const Waiter& waiter) { return waiter.rank == rank_; });
}

std::string WaitBoard::Wait::Warning(Clock::time_point now, const Awaited& awaited) {
    slow_.Told(now);
    const std::lock_guard lock(board_->mutex_);
    Waiter& own = *std::find_if(board_->waiters_.begin(), board_->waiters_.end(),
                                [this](const Waiter& waiter) { return waiter.rank == rank_; });
    own.awaited = awaited.ranks;
    if (!Tells(own, board_->waiters_)) {
        return "";
    }
    std::string text = SlowWaitText(rank_, now - since(), awaited.text);
    for (const int rank : awaited.ranks) {
        text += IsWaiting(rank, board_->waiters_) ? StrCat("; rank ", rank, " waits, too") : "";
    }
    return text;
}

}  // namespace infini_train::comm
