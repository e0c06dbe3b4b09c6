#include "infini_train/include/nn/parallel/pp/checker.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/nn/parallel/pp/checker_rank.h"
#include "infini_train/src/nn/parallel/pp/messages.h"
#include "infini_train/src/nn/parallel/pp/play.h"

namespace infini_train::nn::parallel {
namespace {

using comm::Direction;

/// The k-th receive of an edge takes its k-th message: both ends have them in one order.
void CheckEdges(const PipelineShape& shape, const std::vector<RankPlan>& ranks) {
    std::map<Edge, std::vector<comm::MessageTag>> sent;
    for (const RankPlan& rank : ranks) {
        for (const Action& action : rank.actions()) {
            if (const std::optional<Message> message = MessageOutOf(action, shape, rank.rank())) {
                sent[message->edge].push_back(message->tag);
            }
        }
    }
    std::map<Edge, size_t> num_received;
    for (const RankPlan& rank : ranks) {
        for (size_t i = 0; i < rank.actions().size(); ++i) {
            if (rank.actions()[i].kind != ActionKind::kReceive) {
                continue;
            }
            const Message message = *MessageInto(rank.actions()[i], shape, rank.rank());
            const size_t place = num_received[message.edge]++;
            // Complete plans: there are as many on either side.
            const comm::MessageTag& other = sent.at(message.edge).at(place);
            if (other != message.tag) {
                throw Error({.where = rank.PlaceOf(static_cast<int>(i) + 1),
                             .what = StrCat("takes message ", place + 1, " from rank ", message.edge.from,
                                            ", which is another"),
                             .got = StrCat("the ", comm::ToString(other)),
                             .wanted = StrCat("the ", comm::ToString(message.tag))});
            }
        }
    }
}

/// Where a rank waits, and for what.
struct Wait {
    int line = 0;
    Message message = {};
};

/// The first action of a rank that did not run. With all before it in order on its rank, it waits for a message.
Wait WaitOf(const PipelineShape& shape, const RankPlan& rank, size_t num_played) {
    int line = 0;
    for (const Action& action : rank.actions()) {
        ++line;
        if (action.kind != ActionKind::kReceive && num_played-- == 0) {
            return {.line = line, .message = *MessageInto(action, shape, rank.rank())};
        }
    }
    return {};
}

/// Between complete plans in order, whose edges agree, a message has come when its producer has ended and its receive
/// is posted; and the receive is posted before its consumer's turn. So what a send that waits for its receive could
/// block is nothing but what waits for a producer: playing the dependencies decides.
void CheckEnds(const PipelineShape& shape, const std::vector<ActionList>& plans, const std::vector<RankPlan>& ranks) {
    const std::vector<std::vector<SimulatedAction>> played = Play(shape, plans, {});
    std::vector<Wait> waits;
    int stuck = -1;
    for (const RankPlan& rank : ranks) {
        waits.push_back(WaitOf(shape, rank, played[static_cast<size_t>(rank.rank())].size()));
        stuck = waits.back().line > 0 ? rank.rank() : stuck;
    }
    if (stuck < 0) {
        return;
    }
    // A rank that waits does so for one that waits too: after so many steps the walk is in a circle.
    for (int step = 0; step < shape.num_ranks; ++step) {
        stuck = waits[static_cast<size_t>(stuck)].message.edge.from;
    }
    std::string circle;
    int rank = stuck;
    do {
        const Wait& wait = waits[static_cast<size_t>(rank)];
        circle += circle.empty() ? "waits"
                                 : StrCat(", which waits at line ", wait.line, " (",
                                          ranks[static_cast<size_t>(rank)].TokenAt(wait.line), ")");
        circle += StrCat(" for the ", comm::ToString(wait.message.tag), " from rank ", wait.message.edge.from);
        rank = wait.message.edge.from;
    } while (rank != stuck);
    throw Error({.where = ranks[static_cast<size_t>(stuck)].PlaceOf(waits[static_cast<size_t>(stuck)].line),
                 .what = StrCat("deadlock: ", circle, ", which waits here")});
}

std::string ToString(const BoundarySpec& spec) {
    return StrCat(infini_train::ToString(spec.shape), " ", Name(spec.dtype));
}

void CheckSizes(const PipelineShape& shape, const std::vector<RankPlan>& ranks, const PlanSizes& sizes) {
    const size_t num_boundaries = static_cast<size_t>(shape.num_stages()) - 1;
    CHECK_EQ(sizes.sent.size(), sizes.received.size());
    CHECK(sizes.sent.empty() || sizes.sent.size() >= num_boundaries) << sizes.sent.size() << " of " << num_boundaries;
    CHECK(sizes.activation_bytes.empty() || sizes.activation_bytes.size() == static_cast<size_t>(shape.num_stages()));
    for (size_t stage = 0; stage < std::min(num_boundaries, sizes.sent.size()); ++stage) {
        if (sizes.sent[stage] != sizes.received[stage]) {
            const int next = static_cast<int>(stage) + 1;
            const RankPlan& rank = ranks[static_cast<size_t>(shape.RankOf(next))];
            const int line = rank.LineOfConsumer({.direction = Direction::kForward, .stage = next, .microbatch = 0});
            throw Error({.where = rank.PlaceOf(line),
                         .what = StrCat("stage ", stage, " on rank ", shape.RankOf(static_cast<int>(stage)),
                                        " sends another tensor than stage ", next, " expects"),
                         .got = ToString(sizes.sent[stage]),
                         .wanted = ToString(sizes.received[stage])});
        }
    }
}

/// The bytes of a message: those of its boundary, which lies below the higher of the two stages.
int64_t BytesOf(const comm::MessageTag& tag, const PlanSizes& sizes) {
    const int boundary = tag.direction == Direction::kForward ? tag.stage - 1 : tag.stage;
    return sizes.received.empty() ? 0 : sizes.received[static_cast<size_t>(boundary)].size_bytes();
}

void AddPeaks(const PipelineShape& shape, const RankPlan& rank, PlanKind kind, const PlanSizes& sizes,
              PlanReport* report) {
    int chunks = 0;
    int64_t bytes = 0;
    int& peak_chunks = report->peak_chunks.emplace_back(0);
    int64_t& peak_bytes = report->peak_bytes.emplace_back(0);
    for (const Action& action : rank.actions()) {
        const size_t stage = static_cast<size_t>(shape.StageOf(rank.rank(), action.chunk));
        const int64_t kept = sizes.activation_bytes.empty() ? 0 : sizes.activation_bytes[stage];
        const std::optional<Message> message = MessageInto(action, shape, rank.rank());
        const int64_t received = message ? BytesOf(message->tag, sizes) : 0;
        const bool is_kept = kind == PlanKind::kTraining && action.kind == ActionKind::kForward;
        const bool is_released = action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
        chunks += is_kept ? 1 : 0;
        bytes += (is_kept ? kept : 0) + (action.kind == ActionKind::kReceive ? received : 0);
        peak_chunks = std::max(peak_chunks, chunks);
        peak_bytes = std::max(peak_bytes, bytes);
        chunks -= is_released ? 1 : 0;
        bytes -= (is_released ? kept : 0) + (action.kind == ActionKind::kReceive ? 0 : received);
    }
}

/// FNV-1a, 64 bits.
class Hash {
 public:
    void Add(int value) {
        for (int byte = 0; byte < 4; ++byte) {
            hash_ ^= (static_cast<uint32_t>(value) >> (8 * byte)) & 0xffu;
            hash_ *= 1099511628211ull;
        }
    }
    uint64_t value() const { return hash_; }

 private:
    uint64_t hash_ = 14695981039346656037ull;
};

}  // namespace

int64_t BoundarySpec::size_bytes() const {
    return NumElements(shape) * static_cast<int64_t>(SizeOf(dtype));
}

PlanReport CheckPlans(const PipelineShape& shape, const std::vector<ActionList>& plans, PlanKind kind,
                      const PlanSizes& sizes) {
    CHECK_EQ(plans.size(), static_cast<size_t>(shape.num_ranks)) << "one plan a rank";
    std::vector<RankPlan> ranks;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        ranks.emplace_back(shape, rank, plans[static_cast<size_t>(rank)], kind);
    }
    for (const RankPlan& rank : ranks) {
        rank.CheckComplete();
    }
    for (const RankPlan& rank : ranks) {
        rank.CheckOrder();
        rank.CheckSlots();
    }
    CheckEdges(shape, ranks);
    CheckEnds(shape, plans, ranks);
    CheckSizes(shape, ranks, sizes);
    PlanReport report;
    for (const RankPlan& rank : ranks) {
        AddPeaks(shape, rank, kind, sizes, &report);
    }
    return report;
}

uint64_t PlanHash(const PipelineShape& shape, const std::vector<ActionList>& plans) {
    Hash hash;
    for (const int number : {shape.num_ranks, shape.num_microbatches, shape.num_chunks}) {
        hash.Add(number);
    }
    for (int stage = 0; stage < shape.num_stages(); ++stage) {
        hash.Add(shape.RankOf(stage));
    }
    for (const ActionList& plan : plans) {
        hash.Add(static_cast<int>(plan.size()));
        for (const Action& action : plan) {
            for (const int number : {static_cast<int>(action.kind), action.chunk, action.microbatch,
                                     static_cast<int>(action.direction), action.slot}) {
                hash.Add(number);
            }
        }
    }
    return hash.value();
}

}  // namespace infini_train::nn::parallel
