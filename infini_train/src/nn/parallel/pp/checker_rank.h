#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/include/nn/parallel/pp/checker.h"

namespace infini_train::nn::parallel {

/// A rank's plan with the line of each of its actions, counted from 1. Refers to what it was made of: for use within
/// one call. The Check functions throw Error for what is wrong on this rank alone.
class RankPlan {
 public:
    /// Throws Error for an action that the shape or the kind does not have, or that comes twice.
    RankPlan(const PipelineShape& shape, int rank, const ActionList& plan, PlanKind kind);

    int rank() const { return rank_; }
    const ActionList& actions() const { return plan_; }
    /// "F2.3"
    std::string TokenAt(int line) const;
    /// "plan of rank 1, line 7 (F2.3)"
    std::string PlaceOf(int line) const;

    /// 0 when the plan does not have it. The slot does not matter.
    int LineOf(const Action& action) const { return lines_[IndexOf(action)]; }
    /// Of D or B, which take and give the gradients that travel.
    int LineOfGradient(int chunk, int microbatch) const;
    /// Of D or W, after which the activations are gone.
    int LineOfRelease(int chunk, int microbatch) const;
    /// Of the action that consumes a message, on the rank that it goes to.
    int LineOfConsumer(const comm::MessageTag& tag) const;

    /// Each action of the rank is there, with the receive of what it waits for.
    void CheckComplete() const;
    /// Each comes after what it needs of this rank, and gradients in the order of their micro-batches.
    void CheckOrder() const;
    /// No receive fills a slot before the message in it has been consumed.
    void CheckSlots() const;

 private:
    size_t IndexOf(const Action& action) const;
    void CheckExists(int line) const;
    void CheckGradient(int chunk, int microbatch) const;
    void CheckReceived(const Action& action) const;
    void CheckAfter(int line, int other_line, std::string_view rule) const;

    const PipelineShape& shape_;
    int rank_;
    const ActionList& plan_;
    PlanKind kind_;
    std::vector<int> lines_;  // by IndexOf
};

}  // namespace infini_train::nn::parallel
