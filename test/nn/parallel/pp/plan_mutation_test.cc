// Every valid plan with one action deleted, doubled or swapped: CheckPlans takes exactly those that run. Whether they
// run is found by playing them here in the plainest way, without the checker's code: queues of messages, and sets of
// what has been done.

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/include/nn/parallel/pp/passes.h"
#include "test/nn/parallel/pp/golden_plans.h"
#include "test/support/plan_mutations.h"

namespace infini_train::nn::parallel::test {
namespace {

using comm::Direction;
using infini_train::test::ForEachMutation;
using infini_train::test::Mutation;
using infini_train::test::ValidMutations;

using Tag = std::tuple<bool, int, int>;      // is forward, stage that consumes, micro-batch
using Link = std::tuple<int, int, bool>;     // from, to, is forward
using Done = std::tuple<char, int, int>;     // letter, stage, micro-batch
using SlotKey = std::tuple<int, bool, int>;  // from, is forward, slot

struct PostedReceive {
    Tag tag = {};
    SlotKey slot = {};
};

/// Ranks that run their lists; each link moves its oldest sent message when its oldest receive is posted.
class DumbRun {
 public:
    DumbRun(const PipelineShape& shape, const std::vector<ActionList>& plans) : shape_(shape), plans_(plans) {
        next_.resize(plans.size(), 0);
        slots_.resize(plans.size());
    }

    bool Ends() {
        bool moves = true;
        while (moves && !is_wrong_) {
            moves = false;
            for (int rank = 0; rank < shape_.num_ranks; ++rank) {
                while (!is_wrong_ && RunNext(rank)) {
                    moves = true;
                }
            }
            moves = MoveMessages() || moves;
        }
        return !is_wrong_ && IsAllDone();
    }

 private:
    bool RunNext(int rank) {
        const size_t index = static_cast<size_t>(rank);
        if (next_[index] == plans_[index].size()) {
            return false;
        }
        const Action& action = plans_[index][next_[index]];
        const int stage = shape_.StageOf(rank, action.chunk);
        if (action.kind == ActionKind::kReceive) {
            Post(action, rank, stage);
            ++next_[index];
            return true;
        }
        if (!Consume(action, rank, stage)) {
            return false;
        }
        const char letter = action.kind == ActionKind::kForward         ? 'F'
                            : action.kind == ActionKind::kBackward      ? 'D'
                            : action.kind == ActionKind::kBackwardInput ? 'B'
                                                                        : 'W';
        const int m = action.microbatch;
        const bool has_gradient = done_.contains({'D', stage, m}) || done_.contains({'B', stage, m});
        is_wrong_ = is_wrong_ || !done_.insert({letter, stage, m}).second;
        is_wrong_ =
            is_wrong_ || ((letter == 'D' || letter == 'B') && (has_gradient || !done_.contains({'F', stage, m})));
        is_wrong_ = is_wrong_ || (letter == 'W' && !done_.contains({'B', stage, m}));
        Send(letter, rank, stage, m);
        ++next_[index];
        return true;
    }

    void Post(const Action& action, int rank, int stage) {
        const bool is_forward = action.direction == Direction::kForward;
        const int other = is_forward ? stage - 1 : stage + 1;
        if (other < 0 || other >= shape_.num_stages()) {
            is_wrong_ = true;
            return;
        }
        const int from = shape_.RankOf(other);
        const SlotKey slot = {from, is_forward, action.slot};
        is_wrong_ = is_wrong_ || !slots_[static_cast<size_t>(rank)].insert(slot).second;
        posted_[{from, rank, is_forward}].push_back({.tag = {is_forward, stage, action.microbatch}, .slot = slot});
    }

    /// False while the message is not there.
    bool Consume(const Action& action, int rank, int stage) {
        const bool is_forward = action.kind == ActionKind::kForward;
        const bool has_message =
            action.kind != ActionKind::kBackwardWeight && (is_forward ? stage > 0 : stage + 1 < shape_.num_stages());
        if (!has_message) {
            return true;
        }
        const auto arrived = arrived_.find({is_forward, stage, action.microbatch});
        if (arrived == arrived_.end()) {
            return false;
        }
        slots_[static_cast<size_t>(rank)].erase(arrived->second);
        arrived_.erase(arrived);
        return true;
    }

    void Send(char letter, int rank, int stage, int m) {
        const bool is_forward = letter == 'F';
        const int to = is_forward ? stage + 1 : stage - 1;
        if (letter != 'W' && to >= 0 && to < shape_.num_stages()) {
            sent_[{rank, shape_.RankOf(to), is_forward}].push_back({is_forward, to, m});
        }
    }

    bool MoveMessages() {
        bool moved = false;
        for (auto& [link, tags] : sent_) {
            std::deque<PostedReceive>& receives = posted_[link];
            while (!tags.empty() && !receives.empty()) {
                is_wrong_ = is_wrong_ || tags.front() != receives.front().tag;
                arrived_[tags.front()] = receives.front().slot;
                tags.pop_front();
                receives.pop_front();
                moved = true;
            }
        }
        return moved;
    }

    bool IsAllDone() {
        for (size_t rank = 0; rank < plans_.size(); ++rank) {
            if (next_[rank] != plans_[rank].size()) {
                return false;
            }
        }
        for (int stage = 0; stage < shape_.num_stages(); ++stage) {
            for (int m = 0; m < shape_.num_microbatches; ++m) {
                const bool is_split = done_.contains({'B', stage, m}) && done_.contains({'W', stage, m});
                if (!done_.contains({'F', stage, m}) || !(done_.contains({'D', stage, m}) || is_split)) {
                    return false;
                }
            }
        }
        for (const auto& [link, receives] : posted_) {
            if (!receives.empty()) {
                return false;
            }
        }
        return arrived_.empty();
    }

    const PipelineShape& shape_;
    const std::vector<ActionList>& plans_;
    std::vector<size_t> next_;
    std::vector<std::set<SlotKey>> slots_;  // by rank: filled or promised
    std::map<Link, std::deque<Tag>> sent_;
    std::map<Link, std::deque<PostedReceive>> posted_;
    std::map<Tag, SlotKey> arrived_;
    std::set<Done> done_;
    bool is_wrong_ = false;
};

/// What playing cannot see: gradients of a stage that are summed in another order than that of the micro-batches.
bool SumsInOrder(const PipelineShape& shape, const std::vector<ActionList>& plans) {
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (int chunk = 0; chunk < shape.num_chunks; ++chunk) {
            std::array<int, 2> last = {-1, -1};  // of those in D and B (norms, say), and those in D and W
            for (const Action& action : plans[static_cast<size_t>(rank)]) {
                const bool is_whole = action.kind == ActionKind::kBackward;
                if (action.chunk == chunk && (is_whole || action.kind == ActionKind::kBackwardInput)) {
                    if (action.microbatch < last[0]) {
                        return false;
                    }
                    last[0] = action.microbatch;
                }
                if (action.chunk == chunk && (is_whole || action.kind == ActionKind::kBackwardWeight)) {
                    if (action.microbatch < last[1]) {
                        return false;
                    }
                    last[1] = action.microbatch;
                }
            }
        }
    }
    return true;
}

/// The reason to refuse; nothing when the plans are taken.
std::optional<std::string> Refusal(const PipelineShape& shape, const std::vector<ActionList>& plans) {
    try {
        CheckPlans(shape, plans, PlanKind::kTraining, {});
        return std::nullopt;
    } catch (const Error& error) {
        return error.what();
    }
}

struct Counts {
    int num_valid = 0;
    int num_refused = 0;
    int num_refused_for_sums = 0;  // that would run
};

void AddMutations(const PipelineShape& shape, const std::vector<ActionList>& plans, Counts* counts) {
    ASSERT_TRUE(DumbRun(shape, plans).Ends());
    ForEachMutation(shape, plans, [&](const Mutation& mutation) {
        const std::optional<std::string> refusal = Refusal(shape, mutation.plans);
        const bool ends = DumbRun(shape, mutation.plans).Ends();
        const bool sums = SumsInOrder(shape, mutation.plans);
        ASSERT_EQ(!refusal.has_value(), ends && sums) << mutation.what << ": " << refusal.value_or("taken");
        if (!refusal) {
            ++counts->num_valid;
            return;
        }
        ++counts->num_refused;
        EXPECT_TRUE(refusal->starts_with("plan of rank ")) << *refusal;
        if (ends) {
            EXPECT_NE(refusal->find("summed"), std::string::npos) << mutation.what << ": " << *refusal;
            ++counts->num_refused_for_sums;
        }
    });
}

/// Without and with slots of their own.
Counts TryMutations(const PipelineShape& shape, std::vector<ActionList> plans) {
    Counts counts;
    PlaceReceives(shape, &plans);
    AddMutations(shape, plans, &counts);
    AllocateSlots(shape, &plans);
    AddMutations(shape, plans, &counts);
    return counts;
}

void TrySchedule(const std::string& name, int max_chunks) {
    const std::unique_ptr<PipelineSchedule> schedule = MakeSchedule(name);
    Counts all;
    for (int num_ranks = 1; num_ranks <= 4; ++num_ranks) {
        for (int num_chunks = 1; num_chunks <= max_chunks; ++num_chunks) {
            // Fewer and more micro-batches than ranks; few where there are many stages.
            for (const int num_microbatches : {1, 2, num_ranks * num_chunks > 6 ? 3 : 5}) {
                SCOPED_TRACE(StrCat(name, " P ", num_ranks, " V ", num_chunks, " M ", num_microbatches));
                const PipelineShape shape = {
                    .num_ranks = num_ranks, .num_microbatches = num_microbatches, .num_chunks = num_chunks};
                const Counts counts = TryMutations(shape, ComputePlans(*schedule, shape));
                all.num_valid += counts.num_valid;
                all.num_refused += counts.num_refused;
                all.num_refused_for_sums += counts.num_refused_for_sums;
            }
        }
    }
    EXPECT_GT(all.num_valid, 10);
    EXPECT_GT(all.num_refused, 10 * all.num_valid);
    EXPECT_GT(all.num_refused_for_sums, 0);
}

TEST(PlanMutation, OfGPipeIsTakenOnlyIfItRuns) {
    TrySchedule("gpipe", 1);
}

TEST(PlanMutation, OfOneForwardOneBackwardIsTakenOnlyIfItRuns) {
    TrySchedule("1f1b", 1);
}

TEST(PlanMutation, OfEagerOneForwardOneBackwardIsTakenOnlyIfItRuns) {
    TrySchedule("1f1b_eager", 1);
}

TEST(PlanMutation, OfInterleavedIsTakenOnlyIfItRuns) {
    TrySchedule("interleaved", 3);
}

TEST(PlanMutation, OfLoopedBfsIsTakenOnlyIfItRuns) {
    TrySchedule("looped_bfs", 3);
}

TEST(PlanMutation, OfPlansWithSplitBackwardsIsTakenOnlyIfItRuns) {
    int num_tried = 0;
    int num_refused_for_sums = 0;
    for (const auto& [name, numbers, file] : GoldenPlans()) {
        if (name.starts_with("P2_M4") && PlannerOf(name) == nullptr) {
            SCOPED_TRACE(name);
            const Counts counts = TryMutations(file.shape, file.plans);
            EXPECT_GT(counts.num_valid, 10);
            num_refused_for_sums += counts.num_refused_for_sums;
            ++num_tried;
        }
    }
    EXPECT_EQ(num_tried, 6);
    EXPECT_GT(num_refused_for_sums, 10);
}

TEST(PlanMutation, IsListedForARunWithTensors) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 3};
    const std::vector<ActionList> plans = PlacedPlans(Schedule1F1B(), shape);
    int num_tried = 0;
    ForEachMutation(shape, plans, [&](const Mutation&) { ++num_tried; });
    // Rank 0: F0 F1 RB0 D0 F2 RB1 D1 RB2 D2; rank 1: RF0 F0 D0 RF1 F1 D1 RF2 F2 D2. Nine each: 9 + 9 + 36 changes.
    EXPECT_EQ(num_tried, 2 * (9 + 9 + 36));
    std::vector<std::string> names;
    for (const Mutation& mutation : ValidMutations(shape, plans)) {
        names.push_back(mutation.what);
        EXPECT_TRUE(DumbRun(shape, mutation.plans).Ends());
    }
    EXPECT_EQ(names, (std::vector<std::string>{"rank 0: F0.1 swapped with RB0.0/0", "rank 0: D0.0 swapped with F0.2",
                                               "rank 0: F0.2 swapped with RB0.1/0", "rank 1: D1.0 swapped with RF1.1/0",
                                               "rank 1: D1.1 swapped with RF1.2/0"}));
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
