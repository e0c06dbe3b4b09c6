#pragma once

#include <cstdint>
#include <vector>

#include "infini_train/include/core/dtype.h"
#include "infini_train/include/core/shape.h"
#include "infini_train/include/nn/parallel/pp/action.h"

namespace infini_train::nn::parallel {

/// What crosses from a stage to the next; its gradient has the same.
struct BoundarySpec {
    Shape shape = {};
    DataType dtype = DataType::kFloat32;

    int64_t size_bytes() const;
    auto operator<=>(const BoundarySpec&) const = default;
};

/// What a plan moves and keeps.
struct PlanSizes {
    std::vector<BoundarySpec> sent = {};         // [s]: what stage s sends to s + 1, as its rank says
    std::vector<BoundarySpec> received = {};     // [s]: what stage s + 1 expects of s, as that rank says
    std::vector<int64_t> activation_bytes = {};  // [s]: what F(s, m) keeps for its backward
};

struct PlanReport {
    std::vector<int> peak_chunks = {};     // by rank: most pairs (chunk, micro-batch) with saved activations
    std::vector<int64_t> peak_bytes = {};  // by rank: most bytes of activations and of receive slots together; a slot
                                           // counts from its receive to the end of the action that consumes it
};

enum class PlanKind { kTraining, kForwardOnly };

/// Proves for the plans of all ranks, receives placed, before anything runs:
/// - complete: every F, and for training D or else B and W, of every stage and micro-batch exactly once and on the rank
///   that holds the stage; nothing else; a receive for each message and none besides;
/// - in order: each action after what it depends on; within a stage both D and B, and D and W, in micro-batch order, so
///   that sums keep theirs (B too adds to parameters: a norm's);
/// - no deadlock: played with a send that waits for its receive (rendezvous), one stream per edge, which is what the
///   executor has, each action ends; otherwise the Error says who waits for whom;
/// - both ends of every edge see the same messages in the same order, with the same shape and dtype;
/// - a slot is filled only when the message before it has been consumed.
/// Throws Error: "plan of rank 1, line 7 (F2.3): ..." with what was found and wanted; lines count from 1, receives too.
/// sizes may be empty: then nothing is compared and peak_bytes is 0.
PlanReport CheckPlans(const PipelineShape& shape, const std::vector<ActionList>& plans, PlanKind kind,
                      const PlanSizes& sizes);

/// Which transfers share an in-order stream. Names and rules as in docs/pipeline.md.
enum class StreamMap {
    kOne,            // compute and transfers
    kCommunication,  // all transfers of a rank
    kSendReceive,    // one for sends, one for receives
    kPerDirection,   // one for activations, one for gradients
    kPerEdge,        // each (peer, direction, send or receive)
};

/// Whether some rank waits for ever when every send blocks its stream until the matching receive is at the head of its
/// own. Receives lie in their stream where the plan has them, sends directly behind their producer. Edges from a rank
/// to itself are not transfers.
bool Deadlocks(const PipelineShape& shape, const std::vector<ActionList>& plans, StreamMap streams);

/// A number that two ranks can compare: equal for equal shapes and plans.
uint64_t PlanHash(const PipelineShape& shape, const std::vector<ActionList>& plans);

}  // namespace infini_train::nn::parallel
