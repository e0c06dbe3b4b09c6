#include "infini_train/src/nn/parallel/pp/play.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "glog/logging.h"

#include "infini_train/src/nn/parallel/pp/messages.h"

namespace infini_train::nn::parallel {
namespace {

using comm::Direction;

class Player {
 public:
    Player(const PipelineShape& shape, const std::vector<ActionList>& plans, const PipelineCosts& costs)
        : shape_(shape),
          plans_(plans),
          costs_(costs),
          played_(plans.size()),
          next_(plans.size(), 0),
          ends_(NumIndices(shape)) {
        CHECK_EQ(plans.size(), static_cast<size_t>(shape.num_ranks)) << "one plan a rank";
        CHECK(costs.stages.empty() || costs.stages.size() == static_cast<size_t>(shape.num_stages()))
            << costs.stages.size() << " costs of " << shape.num_stages() << " stages";
    }

    std::vector<std::vector<SimulatedAction>> Run() {
        for (int rank = 0; rank < shape_.num_ranks; ++rank) {
            to_try_.push_back(rank);
        }
        // A rank is tried again only when something was sent to it: the work grows with the number of actions.
        while (!to_try_.empty()) {
            const int rank = to_try_.back();
            to_try_.pop_back();
            while (PlayNext(rank)) {
            }
        }
        return std::move(played_);
    }

 private:
    /// The end of F (forward), or of D or B (backward).
    std::optional<double>& EndOf(Direction direction, int stage, int microbatch) {
        return ends_[IndexOf({.direction = direction, .stage = stage, .microbatch = microbatch}, shape_)];
    }

    /// When what an action depends on is there, if it has run.
    std::optional<double> ReadyTime(const Action& action, int rank) {
        const int stage = shape_.StageOf(rank, action.chunk);
        if (action.kind == ActionKind::kBackwardWeight) {
            return EndOf(Direction::kBackward, stage, action.microbatch);
        }
        const std::optional<Message> message = MessageInto(action, shape_, rank);
        if (!message) {
            return action.kind == ActionKind::kForward ? 0.0 : EndOf(Direction::kForward, stage, action.microbatch);
        }
        const Direction direction = message->tag.direction;
        const int from = direction == Direction::kForward ? stage - 1 : stage + 1;
        const std::optional<double> sent = EndOf(direction, from, action.microbatch);
        const double hop = message->edge.from == rank ? 0.0 : costs_.hop;
        return sent ? std::optional(*sent + hop) : std::nullopt;
    }

    /// False when the rank has to wait, or is at its end.
    bool PlayNext(int rank) {
        const ActionList& plan = plans_[static_cast<size_t>(rank)];
        size_t& next = next_[static_cast<size_t>(rank)];
        while (next < plan.size() && plan[next].kind == ActionKind::kReceive) {
            ++next;
        }
        if (next == plan.size()) {
            return false;
        }
        const Action& action = plan[next];
        const std::optional<double> ready = ReadyTime(action, rank);
        if (!ready) {
            return false;
        }
        ++next;
        const int stage = shape_.StageOf(rank, action.chunk);
        std::vector<SimulatedAction>& played = played_[static_cast<size_t>(rank)];
        const double start = std::max(*ready, played.empty() ? 0.0 : played.back().end);
        const StageCosts costs = costs_.stages.empty() ? StageCosts{} : costs_.stages[static_cast<size_t>(stage)];
        const double end = start + costs.Of(action.kind);
        played.push_back({.action = action, .start = start, .end = end, .ready = *ready});
        if (action.kind != ActionKind::kBackwardWeight) {
            const bool is_forward = action.kind == ActionKind::kForward;
            EndOf(is_forward ? Direction::kForward : Direction::kBackward, stage, action.microbatch) = end;
        }
        if (const std::optional<Message> message = MessageOutOf(action, shape_, rank)) {
            to_try_.push_back(message->edge.to);
        }
        return true;
    }

    const PipelineShape& shape_;
    const std::vector<ActionList>& plans_;
    const PipelineCosts& costs_;
    std::vector<std::vector<SimulatedAction>> played_;
    std::vector<size_t> next_;                 // by rank: its next action
    std::vector<std::optional<double>> ends_;  // by IndexOf
    std::vector<int> to_try_;                  // ranks
};

struct Arrival {
    double time = 0.0;
    int change = 0;  // of the number that waits

    /// At equal times what comes is there before what goes.
    bool operator<(const Arrival& other) const {
        return time != other.time ? time < other.time : change > other.change;
    }
};

}  // namespace

std::vector<std::vector<SimulatedAction>> Play(const PipelineShape& shape, const std::vector<ActionList>& plans,
                                               const PipelineCosts& costs) {
    return Player(shape, plans, costs).Run();
}

std::map<Edge, int> MostWaiting(const PipelineShape& shape, const std::vector<std::vector<SimulatedAction>>& ranks) {
    std::map<Edge, std::vector<Arrival>> arrivals;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (const SimulatedAction& played : ranks[static_cast<size_t>(rank)]) {
            if (const std::optional<Message> message = MessageInto(played.action, shape, rank)) {
                std::vector<Arrival>& edge = arrivals[message->edge];
                edge.push_back({.time = played.ready, .change = 1});
                edge.push_back({.time = played.start, .change = -1});
            }
        }
    }
    std::map<Edge, int> most;
    for (auto& [edge, list] : arrivals) {
        std::sort(list.begin(), list.end());
        int waiting = 0;
        int& peak = most[edge];
        for (const Arrival& arrival : list) {
            waiting += arrival.change;
            peak = std::max(peak, waiting);
        }
    }
    return most;
}

}  // namespace infini_train::nn::parallel
