#pragma once

#include <string>
#include <vector>

#include "infini_train/include/comm/channel.h"
#include "infini_train/include/nn/parallel/pp/pipeline_shape.h"

namespace infini_train::nn::parallel {

/// What a rank does next with a chunk and a micro-batch. Sends are no actions: what the next (or, for a gradient, the
/// previous) stage needs leaves at the end of the action that computes it.
enum class ActionKind {
    kForward,         // F
    kBackward,        // D: gradients of input and weights at once
    kBackwardInput,   // B
    kBackwardWeight,  // W
    kReceive,         // R: posts the receive of what a later F (direction forward), D or B (backward) waits for
};

struct Action {
    ActionKind kind = ActionKind::kForward;
    int chunk = 0;  // of this rank
    int microbatch = 0;
    comm::Direction direction = comm::Direction::kForward;  // of kReceive
    int slot = 0;                                           // of kReceive: which buffer of its edge it fills

    bool operator==(const Action&) const = default;
};

/// What one rank does in a step, in this order.
using ActionList = std::vector<Action>;

/// A letter, the stage, '.', the micro-batch: "F3.0", "D3.0"; a receive: "RF3.0/1" (what F3.0 waits for, in slot 1),
/// "RB3.0/0".
std::string ToString(const Action& action, const PipelineShape& shape, int rank);

}  // namespace infini_train::nn::parallel
