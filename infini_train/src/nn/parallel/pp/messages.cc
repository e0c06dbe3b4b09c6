#include "infini_train/src/nn/parallel/pp/messages.h"

#include "glog/logging.h"

namespace infini_train::nn::parallel {
namespace {

using comm::Direction;

Direction DirectionOf(const Action& action) {
    if (action.kind == ActionKind::kReceive) {
        return action.direction;
    }
    return action.kind == ActionKind::kForward ? Direction::kForward : Direction::kBackward;
}

/// The message in a direction that leads to a stage, if there is a stage before it in that direction.
std::optional<Message> MessageTo(int stage, Direction direction, int microbatch, const PipelineShape& shape) {
    const int from = direction == Direction::kForward ? stage - 1 : stage + 1;
    const int num_stages = shape.num_stages();
    if (from < 0 || from >= num_stages || stage < 0 || stage >= num_stages) {
        return std::nullopt;
    }
    return Message{.tag = {.direction = direction, .stage = stage, .microbatch = microbatch},
                   .edge = {.from = shape.RankOf(from), .to = shape.RankOf(stage), .direction = direction}};
}

}  // namespace

std::optional<Message> MessageInto(const Action& action, const PipelineShape& shape, int rank) {
    if (action.kind == ActionKind::kBackwardWeight) {
        return std::nullopt;
    }
    return MessageTo(shape.StageOf(rank, action.chunk), DirectionOf(action), action.microbatch, shape);
}

std::optional<Message> MessageOutOf(const Action& action, const PipelineShape& shape, int rank) {
    if (action.kind == ActionKind::kBackwardWeight || action.kind == ActionKind::kReceive) {
        return std::nullopt;
    }
    const int stage = shape.StageOf(rank, action.chunk);
    const Direction direction = DirectionOf(action);
    return MessageTo(direction == Direction::kForward ? stage + 1 : stage - 1, direction, action.microbatch, shape);
}

size_t IndexOf(const comm::MessageTag& tag, const PipelineShape& shape) {
    CHECK(0 <= tag.microbatch && tag.microbatch < shape.num_microbatches)
        << "micro-batch " << tag.microbatch << " of " << shape.num_microbatches;
    const size_t row = static_cast<size_t>(tag.stage) * 2 + (tag.direction == Direction::kForward ? 0 : 1);
    return row * static_cast<size_t>(shape.num_microbatches) + static_cast<size_t>(tag.microbatch);
}

size_t NumIndices(const PipelineShape& shape) {
    return 2 * static_cast<size_t>(shape.num_stages()) * static_cast<size_t>(shape.num_microbatches);
}

}  // namespace infini_train::nn::parallel
