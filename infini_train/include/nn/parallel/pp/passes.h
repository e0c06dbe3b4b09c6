#pragma once

#include <vector>

#include "infini_train/include/nn/parallel/pp/action.h"

namespace infini_train::nn::parallel {

// Plans need not be right: CheckPlans says so afterwards.

/// Adds the receives to the compute actions of all ranks: one for each F whose stage is not the first and each D or B
/// whose stage is not the last (edges from a rank to itself included), directly before the action that consumes it, but
/// never later than a receive of a message that was sent after it on the same edge: an edge keeps the sender's order.
/// One slot an edge, or more where it consumes in another order than it was sent in.
void PlaceReceives(const PipelineShape& shape, std::vector<ActionList>* plans);

/// Gives every edge as many slots as the plan needs at unit costs (n: the simulator's recv_slots, self edges too), and
/// one more, which lets the next message travel while the one before it is consumed; numbers them in turn; and moves
/// receives up: the first n of an edge to the start of the list, each other directly before the action that consumes
/// the message n before it. Keeps the order of an edge.
void AllocateSlots(const PipelineShape& shape, std::vector<ActionList>* plans);

}  // namespace infini_train::nn::parallel
