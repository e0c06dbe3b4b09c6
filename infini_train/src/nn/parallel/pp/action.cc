#include "infini_train/include/nn/parallel/pp/action.h"

#include <string_view>

#include "infini_train/include/common/str_cat.h"

namespace infini_train::nn::parallel {
namespace {

std::string_view Letter(const Action& action) {
    switch (action.kind) {
        case ActionKind::kForward:
            return "F";
        case ActionKind::kBackward:
            return "D";
        case ActionKind::kBackwardInput:
            return "B";
        case ActionKind::kBackwardWeight:
            return "W";
        case ActionKind::kReceive:
            return action.direction == comm::Direction::kForward ? "RF" : "RB";
    }
    return "?";
}

}  // namespace

std::string ToString(const Action& action, const PipelineShape& shape, int rank) {
    const std::string slot = action.kind == ActionKind::kReceive ? StrCat("/", action.slot) : "";
    return StrCat(Letter(action), shape.StageOf(rank, action.chunk), ".", action.microbatch, slot);
}

}  // namespace infini_train::nn::parallel
