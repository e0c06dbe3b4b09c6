#include "infini_train/src/comm/outcome.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

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

void Outcome::WaitForAll(double grace_s) {
    const auto ended = [&] { return num_ended_ == num_ranks_; };
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended() || first_error_.has_value(); });
    if (!changed_.wait_for(lock, std::chrono::duration<double>(grace_s), ended)) {
        std::fprintf(stderr, "%s\n", first_error_->what());
        // Not exit: it would destroy what the rank still uses.
        _exit(first_error_->exit_code());
    }
}

}  // namespace infini_train::comm
