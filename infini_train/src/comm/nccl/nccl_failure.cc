#include "infini_train/src/comm/nccl/nccl_failure.h"

#include <chrono>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {

bool NcclFailure::Set(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (is_set()) {
        return false;
    }
    text_ = why;
    is_set_.store(true, std::memory_order_release);
    changed_.notify_all();
    return true;
}

std::string NcclFailure::text() const {
    const std::lock_guard lock(mutex_);
    return text_;
}

void NcclFailure::ThrowIfSet(int rank) const {
    if (is_set()) {
        throw Error({.where = StrCat("rank ", rank), .what = text(), .kind = Error::Kind::kRuntime});
    }
}

bool NcclFailure::WaitFor(double limit_s) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(limit_s), [&] { return is_set(); });
}

}  // namespace infini_train::comm
