#include "infini_train/include/comm/wait_error.h"

#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {
namespace {

std::string What(const WaitError::Wait& wait) {
    return wait.failure.empty() ? StrCat("waited ", wait.timeout_s, " s for ", wait.waited_for)
                                : StrCat(wait.failure, " while this one waited for ", wait.waited_for);
}

}  // namespace

WaitError::WaitError(const Wait& wait)
    : Error({.where = StrCat("rank ", wait.rank), .what = What(wait), .kind = Error::Kind::kRuntime}), wait_(wait) {}

WaitError WaitError::At(const std::string& place) const {
    Wait wait = wait_;
    wait.waited_for += ", " + place;
    return WaitError(wait);
}

}  // namespace infini_train::comm
