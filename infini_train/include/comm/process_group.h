#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/include/comm/channel.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::comm {

/// A directed edge between two ranks of a group, or from one to itself, for one direction.
struct Link {
    int from = 0;
    int to = 0;
    Direction direction = Direction::kForward;

    bool operator==(const Link&) const = default;
};
/// The ends of links that a rank has, by the rank at the other end.
struct LinkEnds {
    std::map<std::pair<int, Direction>, std::unique_ptr<Sender>> senders = {};
    std::map<std::pair<int, Direction>, std::unique_ptr<Receiver>> receivers = {};
};

/// Ranks that work together, as one of them sees them. Every method but ThrowIfFailed is collective: all ranks of the
/// group call it, in the same order. Whatever waits throws Error when a rank fails, or does not come within the
/// time-out: it names the group, the operation and who was waited for. On a device with streams the work on tensors is
/// enqueued, and what came of it is valid once the host has waited for it and ThrowIfFailed has returned.
class ProcessGroup {
 public:
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;
    virtual ~ProcessGroup() = default;

    /// Place in this group, from 0.
    int rank() const { return rank_; }
    int size() const { return static_cast<int>(world_ranks_.size()); }
    /// Of each rank of the group its rank in the world.
    const std::vector<int>& world_ranks() const { return world_ranks_; }

    /// Each tensor becomes its sum over the ranks: the same bits on every rank and in every run, added in rank order
    /// (in an order of its own where NCCL adds). float32, int64; the ranks' lists agree in length, shapes and dtypes.
    virtual void AllReduceSum(const TensorList& tensors) = 0;
    /// gathered[i] = x of rank i. x [...], gathered [size, ...], any dtype.
    virtual void AllGather(const Tensor& x, Tensor& gathered) = 0;
    /// x becomes that of the root.
    virtual void Broadcast(Tensor& x, int root) = 0;
    /// Returns when all have called it.
    virtual void Barrier() = 0;
    /// The text of each rank: for what ranks must agree on before they compute. Not for the middle of a step.
    virtual std::vector<std::string> ExchangeText(const std::string& text) = 0;
    /// Groups of the ranks with equal color, in rank order; a negative color: none, null.
    virtual std::shared_ptr<ProcessGroup> Split(int color) = 0;

    /// This rank's ends of the links. Every rank gives the same list; each link is opened once in the life of a group.
    virtual LinkEnds OpenLinks(const std::vector<Link>& links) = 0;

    /// Throws the Error of a rank that has failed.
    virtual void ThrowIfFailed() = 0;

 protected:
    ProcessGroup(int rank, std::vector<int> world_ranks) : rank_(rank), world_ranks_(std::move(world_ranks)) {}

 private:
    int rank_;
    std::vector<int> world_ranks_;
};

}  // namespace infini_train::comm
