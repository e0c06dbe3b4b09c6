#include "infini_train/src/comm/outcome.h"

#include <chrono>

#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {

std::string RankErrorText(int rank, std::string_view what) {
    const std::string own = StrCat("rank ", rank, ": ");
    what.remove_prefix(what.starts_with(own) ? own.size() : 0);
    return StrCat("[rank ", rank, "] ", what);
}

bool Outcome::SetFirst(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (first_error_.has_value()) {
        return false;
    }
    first_error_ = error;
    changed_.notify_all();
    return true;
}

bool Outcome::RankFailed(int rank, std::string_view what, Error::Kind kind) {
    return SetFirst(Error({.what = RankErrorText(rank, what), .kind = kind}));
}

bool Outcome::RunFailed(const std::string& why) {
    return SetFirst(Error({.what = why, .kind = Error::Kind::kRuntime}));
}

void Outcome::RankEnded() {
    const std::lock_guard lock(mutex_);
    ++num_ended_;
    changed_.notify_all();
}

bool Outcome::WaitForAll(double grace_s) {
    const auto ended = [&] { return num_ended_ == num_ranks_; };
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended() || first_error_.has_value(); });
    return changed_.wait_for(lock, std::chrono::duration<double>(grace_s), ended);
}

std::optional<Error> Outcome::FirstError() const {
    const std::lock_guard lock(mutex_);
    return first_error_;
}

}  // namespace infini_train::comm
