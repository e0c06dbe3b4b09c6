#pragma once

#include <cstddef>
#include <optional>

#include "infini_train/include/nn/parallel/pp/action.h"
#include "infini_train/include/nn/parallel/pp/simulator.h"

namespace infini_train::nn::parallel {

/// What goes from a stage to its neighbour.
struct Message {
    comm::MessageTag tag = {};
    Edge edge = {};
};

/// What an action of a rank waits for, or, if it is a receive, receives. Nothing for W, for F of the first stage, and
/// for D and B of the last.
std::optional<Message> MessageInto(const Action& action, const PipelineShape& shape, int rank);
/// What it sends when it ends. Nothing for W and receives, for F of the last stage, and for D and B of the first.
std::optional<Message> MessageOutOf(const Action& action, const PipelineShape& shape, int rank);

/// Numbers the messages of a step: below 2 x stages x micro-batches.
size_t IndexOf(const comm::MessageTag& tag, const PipelineShape& shape);
size_t NumIndices(const PipelineShape& shape);

}  // namespace infini_train::nn::parallel
