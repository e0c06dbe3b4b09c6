#include "infini_train/include/comm/channel.h"

#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {

std::string ToString(const MessageTag& tag) {
    return StrCat(tag.direction == Direction::kForward ? "forward" : "backward", " of micro-batch ", tag.microbatch,
                  " for stage ", tag.stage);
}

std::string ToString(const MessageSpec& spec) {
    return StrCat(ToString(spec.tag), " ", infini_train::ToString(spec.shape), " ", Name(spec.dtype));
}

}  // namespace infini_train::comm
