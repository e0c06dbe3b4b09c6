#include "infini_train/include/nn/parallel/pp/passes.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "infini_train/src/nn/parallel/pp/messages.h"
#include "infini_train/src/nn/parallel/pp/play.h"

namespace infini_train::nn::parallel {
namespace {

/// The messages of an edge in the sender's order, as receives of the rank at its end; and how far they have come while
/// that rank's plan is walked.
struct Inbound {
    ActionList receives = {};
    size_t num_ahead = 0;  // so many messages are under way before one is consumed
    size_t num_posted = 0;
    size_t num_consumed = 0;
    std::vector<bool> is_taken = {};  // slots
    size_t next_slot = 0;             // they are used in turn

    Action Post() {
        for (size_t tried = 0; tried < is_taken.size() && is_taken[next_slot]; ++tried) {
            next_slot = (next_slot + 1) % is_taken.size();
        }
        if (is_taken[next_slot]) {
            next_slot = is_taken.size();
            is_taken.push_back(false);
        }
        Action& receive = receives[num_posted++];
        receive.slot = static_cast<int>(next_slot);
        is_taken[next_slot] = true;
        next_slot = (next_slot + 1) % is_taken.size();
        return receive;
    }
};

class Placement {
 public:
    Placement(const PipelineShape& shape, const std::vector<ActionList>& plans, const std::map<Edge, int>& num_ahead)
        : shape_(shape), plans_(plans), places_(NumIndices(shape), kNone) {
        AddMessages(MessageOutOf);
        AddMessages(MessageInto);  // also those that nobody sends: the checker says what is wrong then
        for (auto& [edge, inbound] : inbound_) {
            const auto ahead = num_ahead.find(edge);
            inbound.num_ahead = ahead == num_ahead.end() ? 0 : static_cast<size_t>(ahead->second);
            inbound.is_taken.assign(inbound.num_ahead + 1, false);
        }
    }

    /// The compute actions of a rank with its receives.
    ActionList PlanOf(int rank) {
        ActionList plan;
        for (auto& [edge, inbound] : inbound_) {
            if (edge.to == rank) {
                PostUpTo(inbound.num_ahead, &inbound, &plan);
            }
        }
        for (const Action& action : plans_[static_cast<size_t>(rank)]) {
            if (action.kind == ActionKind::kReceive) {
                continue;
            }
            if (const std::optional<Message> message = MessageInto(action, shape_, rank)) {
                Inbound& inbound = inbound_.at(message->edge);
                const size_t place = places_[IndexOf(message->tag, shape_)];
                PostUpTo(std::max(place, inbound.num_consumed + inbound.num_ahead) + 1, &inbound, &plan);
                ++inbound.num_consumed;
                inbound.is_taken[static_cast<size_t>(inbound.receives[place].slot)] = false;
            }
            plan.push_back(action);
        }
        return plan;
    }

 private:
    static constexpr size_t kNone = static_cast<size_t>(-1);

    void AddMessages(std::optional<Message> (*message_of)(const Action&, const PipelineShape&, int)) {
        for (int rank = 0; rank < shape_.num_ranks; ++rank) {
            for (const Action& action : plans_[static_cast<size_t>(rank)]) {
                const std::optional<Message> message = message_of(action, shape_, rank);
                if (!message || places_[IndexOf(message->tag, shape_)] != kNone) {
                    continue;
                }
                ActionList& receives = inbound_[message->edge].receives;
                places_[IndexOf(message->tag, shape_)] = receives.size();
                receives.push_back({.kind = ActionKind::kReceive,
                                    .chunk = shape_.ChunkOf(message->tag.stage),
                                    .microbatch = message->tag.microbatch,
                                    .direction = message->tag.direction});
            }
        }
    }

    void PostUpTo(size_t num_wanted, Inbound* inbound, ActionList* plan) {
        while (inbound->num_posted < std::min(num_wanted, inbound->receives.size())) {
            plan->push_back(inbound->Post());
        }
    }

    const PipelineShape& shape_;
    const std::vector<ActionList>& plans_;
    std::vector<size_t> places_;  // by IndexOf: on its edge
    std::map<Edge, Inbound> inbound_;
};

void Place(const PipelineShape& shape, const std::map<Edge, int>& num_ahead, std::vector<ActionList>* plans) {
    Placement placement(shape, *plans, num_ahead);
    std::vector<ActionList> placed;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        placed.push_back(placement.PlanOf(rank));
    }
    *plans = std::move(placed);
}

}  // namespace

void PlaceReceives(const PipelineShape& shape, std::vector<ActionList>* plans) {
    Place(shape, {}, plans);
}

void AllocateSlots(const PipelineShape& shape, std::vector<ActionList>* plans) {
    Place(shape, MostWaiting(shape, Play(shape, *plans, {})), plans);
}

}  // namespace infini_train::nn::parallel
