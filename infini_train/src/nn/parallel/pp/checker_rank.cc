#include "infini_train/src/nn/parallel/pp/checker_rank.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/nn/parallel/pp/messages.h"

namespace infini_train::nn::parallel {
namespace {

using comm::Direction;

constexpr std::string_view kNeeds = "an action comes after what it needs";
constexpr std::string_view kSums = "gradients are summed in the order of the micro-batches";
constexpr std::string_view kSlot = "a slot is filled after what was in it has been consumed";

Action ReceiveOf(const comm::MessageTag& tag, int chunk) {
    return {.kind = ActionKind::kReceive, .chunk = chunk, .microbatch = tag.microbatch, .direction = tag.direction};
}

}  // namespace

RankPlan::RankPlan(const PipelineShape& shape, int rank, const ActionList& plan, PlanKind kind)
    : shape_(shape), rank_(rank), plan_(plan), kind_(kind) {
    constexpr size_t kNumRows = 6;  // F, D, B, W, and receives of either direction
    lines_.assign(kNumRows * static_cast<size_t>(shape.num_chunks) * static_cast<size_t>(shape.num_microbatches), 0);
    for (int line = 1; line <= static_cast<int>(plan.size()); ++line) {
        CheckExists(line);
        int& first = lines_[IndexOf(plan[static_cast<size_t>(line) - 1])];
        if (first != 0) {
            throw Error({.where = PlaceOf(line), .what = StrCat("comes a second time: the first is line ", first)});
        }
        first = line;
    }
}

std::string RankPlan::TokenAt(int line) const {
    return ToString(plan_[static_cast<size_t>(line) - 1], shape_, rank_);
}

std::string RankPlan::PlaceOf(int line) const {
    return StrCat("plan of rank ", rank_, ", line ", line, " (", TokenAt(line), ")");
}

int RankPlan::LineOfGradient(int chunk, int microbatch) const {
    return std::max(LineOf({.kind = ActionKind::kBackward, .chunk = chunk, .microbatch = microbatch}),
                    LineOf({.kind = ActionKind::kBackwardInput, .chunk = chunk, .microbatch = microbatch}));
}

int RankPlan::LineOfRelease(int chunk, int microbatch) const {
    return std::max(LineOf({.kind = ActionKind::kBackward, .chunk = chunk, .microbatch = microbatch}),
                    LineOf({.kind = ActionKind::kBackwardWeight, .chunk = chunk, .microbatch = microbatch}));
}

int RankPlan::LineOfConsumer(const comm::MessageTag& tag) const {
    const int chunk = shape_.ChunkOf(tag.stage);
    return tag.direction == Direction::kForward
               ? LineOf({.kind = ActionKind::kForward, .chunk = chunk, .microbatch = tag.microbatch})
               : LineOfGradient(chunk, tag.microbatch);
}

void RankPlan::CheckComplete() const {
    for (int chunk = 0; chunk < shape_.num_chunks; ++chunk) {
        for (int microbatch = 0; microbatch < shape_.num_microbatches; ++microbatch) {
            const Action forward = {.kind = ActionKind::kForward, .chunk = chunk, .microbatch = microbatch};
            if (LineOf(forward) == 0) {
                throw Error({.where = StrCat("plan of rank ", rank_),
                             .what = "a forward is missing",
                             .wanted = ToString(forward, shape_, rank_)});
            }
            CheckReceived(forward);
            if (kind_ == PlanKind::kTraining) {
                CheckGradient(chunk, microbatch);
            }
        }
    }
}

void RankPlan::CheckOrder() const {
    for (int chunk = 0; chunk < shape_.num_chunks; ++chunk) {
        for (int microbatch = 0; microbatch < shape_.num_microbatches; ++microbatch) {
            Action action = {.kind = ActionKind::kForward, .chunk = chunk, .microbatch = microbatch};
            const int forward = LineOf(action);
            if (const auto message = MessageInto(action, shape_, rank_)) {
                CheckAfter(forward, LineOf(ReceiveOf(message->tag, chunk)), kNeeds);
            }
            if (kind_ == PlanKind::kForwardOnly) {
                continue;
            }
            const int gradient = LineOfGradient(chunk, microbatch);
            const int release = LineOfRelease(chunk, microbatch);
            CheckAfter(gradient, forward, kNeeds);
            CheckAfter(release, gradient, kNeeds);
            action.kind = ActionKind::kBackward;
            if (const auto message = MessageInto(action, shape_, rank_)) {
                CheckAfter(gradient, LineOf(ReceiveOf(message->tag, chunk)), kNeeds);
            }
            if (microbatch > 0) {
                CheckAfter(gradient, LineOfGradient(chunk, microbatch - 1), kSums);
                CheckAfter(release, LineOfRelease(chunk, microbatch - 1), kSums);
            }
        }
    }
}

void RankPlan::CheckSlots() const {
    std::map<std::pair<Edge, int>, int> filled;  // edge and slot: the line of the receive that filled it last
    for (int line = 1; line <= static_cast<int>(plan_.size()); ++line) {
        const Action& action = plan_[static_cast<size_t>(line) - 1];
        if (action.kind != ActionKind::kReceive) {
            continue;
        }
        const Message message = *MessageInto(action, shape_, rank_);
        int& before = filled[{message.edge, action.slot}];
        if (before != 0) {
            const Message held = *MessageInto(plan_[static_cast<size_t>(before) - 1], shape_, rank_);
            CheckAfter(line, LineOfConsumer(held.tag), kSlot);
        }
        before = line;
    }
}

size_t RankPlan::IndexOf(const Action& action) const {
    const bool is_backward_receive = action.kind == ActionKind::kReceive && action.direction == Direction::kBackward;
    const size_t row = static_cast<size_t>(action.kind) + (is_backward_receive ? 1 : 0);
    return (row * static_cast<size_t>(shape_.num_chunks) + static_cast<size_t>(action.chunk)) *
               static_cast<size_t>(shape_.num_microbatches) +
           static_cast<size_t>(action.microbatch);
}

void RankPlan::CheckExists(int line) const {
    const Action& action = plan_[static_cast<size_t>(line) - 1];
    if (action.chunk < 0 || action.chunk >= shape_.num_chunks) {
        throw Error({.where = StrCat("plan of rank ", rank_, ", line ", line),
                     .what = "no such chunk",
                     .got = StrCat(action.chunk),
                     .wanted = StrCat("0 to ", shape_.num_chunks - 1)});
    }
    if (action.microbatch < 0 || action.microbatch >= shape_.num_microbatches) {
        throw Error({.where = PlaceOf(line),
                     .what = "no such micro-batch",
                     .got = StrCat(action.microbatch),
                     .wanted = StrCat("0 to ", shape_.num_microbatches - 1)});
    }
    if (action.kind == ActionKind::kReceive && action.slot < 0) {
        throw Error(
            {.where = PlaceOf(line), .what = "no such slot", .got = StrCat(action.slot), .wanted = "0 or more"});
    }
    if (action.kind == ActionKind::kReceive && !MessageInto(action, shape_, rank_)) {
        throw Error({.where = PlaceOf(line), .what = "no stage sends this: the receive would wait for ever"});
    }
    const bool is_forward = action.kind == ActionKind::kReceive ? action.direction == Direction::kForward
                                                                : action.kind == ActionKind::kForward;
    if (kind_ == PlanKind::kForwardOnly && !is_forward) {
        throw Error({.where = PlaceOf(line), .what = "a forward-only plan has no backward"});
    }
}

void RankPlan::CheckGradient(int chunk, int microbatch) const {
    const Action whole = {.kind = ActionKind::kBackward, .chunk = chunk, .microbatch = microbatch};
    const Action input = {.kind = ActionKind::kBackwardInput, .chunk = chunk, .microbatch = microbatch};
    const Action weight = {.kind = ActionKind::kBackwardWeight, .chunk = chunk, .microbatch = microbatch};
    const bool has_whole = LineOf(whole) != 0;
    const bool has_input = LineOf(input) != 0;
    const bool has_weight = LineOf(weight) != 0;
    if (has_input != has_weight || has_whole == has_input) {
        std::string got;
        for (const Action& action : {whole, input, weight}) {
            if (LineOf(action) != 0) {
                got += StrCat(got.empty() ? "" : " and ", ToString(action, shape_, rank_), " in line ", LineOf(action));
            }
        }
        throw Error({.where = StrCat("plan of rank ", rank_),
                     .what = "a backward is missing, or there are two",
                     .got = got.empty() ? "none" : got,
                     .wanted = StrCat(ToString(whole, shape_, rank_), ", or ", ToString(input, shape_, rank_), " and ",
                                      ToString(weight, shape_, rank_))});
    }
    CheckReceived(LineOf(whole) != 0 ? whole : input);
}

void RankPlan::CheckReceived(const Action& action) const {
    const std::optional<Message> message = MessageInto(action, shape_, rank_);
    if (message && LineOf(ReceiveOf(message->tag, action.chunk)) == 0) {
        throw Error(
            {.where = PlaceOf(LineOf(action)),
             .what = StrCat("nothing receives the ", comm::ToString(message->tag), " from rank ", message->edge.from)});
    }
}

void RankPlan::CheckAfter(int line, int other_line, std::string_view rule) const {
    if (line < other_line) {
        throw Error({.where = PlaceOf(line),
                     .what = std::string(rule),
                     .got = StrCat("line ", line),
                     .wanted = StrCat("a line after ", other_line, " (", TokenAt(other_line), ")")});
    }
}

}  // namespace infini_train::nn::parallel
