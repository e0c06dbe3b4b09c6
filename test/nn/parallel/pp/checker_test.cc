#include "infini_train/include/nn/parallel/pp/checker.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/passes.h"
#include "test/nn/parallel/pp/golden_plans.h"

namespace infini_train::nn::parallel::test {
namespace {

using comm::Direction;

Action Forward(int chunk, int microbatch) {
    return {.kind = ActionKind::kForward, .chunk = chunk, .microbatch = microbatch};
}

Action Backward(int chunk, int microbatch) {
    return {.kind = ActionKind::kBackward, .chunk = chunk, .microbatch = microbatch};
}

Action BackwardInput(int chunk, int microbatch) {
    return {.kind = ActionKind::kBackwardInput, .chunk = chunk, .microbatch = microbatch};
}

Action BackwardWeight(int chunk, int microbatch) {
    return {.kind = ActionKind::kBackwardWeight, .chunk = chunk, .microbatch = microbatch};
}

Action Receive(Direction direction, int chunk, int microbatch, int slot) {
    return {
        .kind = ActionKind::kReceive, .chunk = chunk, .microbatch = microbatch, .direction = direction, .slot = slot};
}

/// What CheckPlans says, or "ok".
std::string Verdict(const PipelineShape& shape, const std::vector<ActionList>& plans,
                    PlanKind kind = PlanKind::kTraining, const PlanSizes& sizes = {}) {
    try {
        CheckPlans(shape, plans, kind, sizes);
        return "ok";
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), 2);
        return error.what();
    }
}

/// Two ranks, two micro-batches, one forward and one backward in turn:
///   rank 0: 1 F0.0, 2 F0.1, 3 RB0.0, 4 D0.0, 5 RB0.1, 6 D0.1
///   rank 1: 1 RF1.0, 2 F1.0, 3 D1.0, 4 RF1.1, 5 F1.1, 6 D1.1
class PlanChecker : public ::testing::Test {
 protected:
    Action& At(int rank, int line) { return plans_[static_cast<size_t>(rank)][static_cast<size_t>(line) - 1]; }
    void Delete(int rank, int line) {
        ActionList& plan = plans_[static_cast<size_t>(rank)];
        plan.erase(plan.begin() + line - 1);
    }
    void Insert(int rank, int line, const Action& action) {
        ActionList& plan = plans_[static_cast<size_t>(rank)];
        plan.insert(plan.begin() + line - 1, action);
    }
    std::string Verdict() const { return test::Verdict(shape_, plans_); }

    PipelineShape shape_ = {.num_ranks = 2, .num_microbatches = 2};
    std::vector<ActionList> plans_ = PlacedPlans(Schedule1F1B(), shape_);
};

TEST_F(PlanChecker, TakesAGoodPlanAndCountsItsPeak) {
    EXPECT_EQ(Verdict(), "ok");
    EXPECT_EQ(CheckPlans(shape_, plans_, PlanKind::kTraining, {}).peak_chunks, (std::vector<int>{2, 1}));
    EXPECT_EQ(CheckPlans(shape_, plans_, PlanKind::kTraining, {}).peak_bytes, (std::vector<int64_t>{0, 0}));
}

TEST_F(PlanChecker, RefusesWhatTheShapeDoesNotHave) {
    At(1, 2).chunk = 1;
    EXPECT_EQ(Verdict(), "plan of rank 1, line 2: no such chunk (got 1, wanted 0 to 0)");
    At(1, 2).chunk = -1;
    EXPECT_EQ(Verdict(), "plan of rank 1, line 2: no such chunk (got -1, wanted 0 to 0)");
    At(1, 2) = Forward(0, 2);
    EXPECT_EQ(Verdict(), "plan of rank 1, line 2 (F1.2): no such micro-batch (got 2, wanted 0 to 1)");
    At(1, 2) = Forward(0, -7);
    EXPECT_EQ(Verdict(), "plan of rank 1, line 2 (F1.-7): no such micro-batch (got -7, wanted 0 to 1)");
    At(1, 2) = Forward(0, 0);
    At(1, 4).slot = -1;
    EXPECT_EQ(Verdict(), "plan of rank 1, line 4 (RF1.1/-1): no such slot (got -1, wanted 0 or more)");
}

TEST_F(PlanChecker, RefusesAReceiveOfWhatNobodySends) {
    Insert(0, 1, Receive(Direction::kForward, 0, 0, 0));
    EXPECT_EQ(Verdict(), "plan of rank 0, line 1 (RF0.0/0): no stage sends this: the receive would wait for ever");
    Delete(0, 1);
    Insert(1, 4, Receive(Direction::kBackward, 0, 1, 0));
    EXPECT_EQ(Verdict(), "plan of rank 1, line 4 (RB1.1/0): no stage sends this: the receive would wait for ever");
}

TEST_F(PlanChecker, RefusesAnActionTwice) {
    Insert(1, 6, Forward(0, 0));
    EXPECT_EQ(Verdict(), "plan of rank 1, line 6 (F1.0): comes a second time: the first is line 2");
    At(1, 6) = Receive(Direction::kForward, 0, 1, 5);
    EXPECT_EQ(Verdict(), "plan of rank 1, line 6 (RF1.1/5): comes a second time: the first is line 4");
}

TEST_F(PlanChecker, RefusesAPlanWithoutAForward) {
    Delete(0, 2);
    EXPECT_EQ(Verdict(), "plan of rank 0: a forward is missing (wanted F0.1)");
}

TEST_F(PlanChecker, RefusesABackwardThatIsNotThereOnce) {
    const std::string wanted = "wanted D1.1, or B1.1 and W1.1)";
    const std::string where = "plan of rank 1: a backward is missing, or there are two ";
    Delete(1, 6);
    EXPECT_EQ(Verdict(), where + "(got none, " + wanted);
    Insert(1, 6, BackwardInput(0, 1));
    EXPECT_EQ(Verdict(), where + "(got B1.1 in line 6, " + wanted);
    At(1, 6) = BackwardWeight(0, 1);
    EXPECT_EQ(Verdict(), where + "(got W1.1 in line 6, " + wanted);
    Insert(1, 6, BackwardInput(0, 1));
    EXPECT_EQ(Verdict(), "ok");
    Insert(1, 8, Backward(0, 1));
    EXPECT_EQ(Verdict(), where + "(got D1.1 in line 8 and B1.1 in line 6 and W1.1 in line 7, " + wanted);
    Delete(1, 7);
    EXPECT_EQ(Verdict(), where + "(got D1.1 in line 7 and B1.1 in line 6, " + wanted);
}

TEST_F(PlanChecker, RefusesAPlanWithoutAReceive) {
    Delete(1, 4);
    EXPECT_EQ(Verdict(),
              "plan of rank 1, line 4 (F1.1): nothing receives the forward of micro-batch 1 for stage 1 from rank 0");
    Insert(1, 4, Receive(Direction::kForward, 0, 1, 0));
    Delete(0, 3);
    EXPECT_EQ(Verdict(),
              "plan of rank 0, line 3 (D0.0): nothing receives the backward of micro-batch 0 for stage 0 from rank 1");
}

TEST_F(PlanChecker, RefusesAnActionBeforeWhatItNeeds) {
    const std::string rule = "an action comes after what it needs ";
    std::swap(At(1, 1), At(1, 2));
    EXPECT_EQ(Verdict(), "plan of rank 1, line 1 (F1.0): " + rule + "(got line 1, wanted a line after 2 (RF1.0/0))");
    std::swap(At(1, 1), At(1, 2));
    std::swap(At(1, 2), At(1, 3));
    EXPECT_EQ(Verdict(), "plan of rank 1, line 2 (D1.0): " + rule + "(got line 2, wanted a line after 3 (F1.0))");
    std::swap(At(1, 2), At(1, 3));
    std::swap(At(0, 5), At(0, 6));
    EXPECT_EQ(Verdict(), "plan of rank 0, line 5 (D0.1): " + rule + "(got line 5, wanted a line after 6 (RB0.1/0))");
    std::swap(At(0, 5), At(0, 6));
    At(1, 6) = BackwardWeight(0, 1);
    Insert(1, 7, BackwardInput(0, 1));
    EXPECT_EQ(Verdict(), "plan of rank 1, line 6 (W1.1): " + rule + "(got line 6, wanted a line after 7 (B1.1))");
}

TEST_F(PlanChecker, KeepsTheOrderOfSumsOfEveryKindOfBackward) {
    const std::string rule = "gradients are summed in the order of the micro-batches ";
    const PipelineShape shape = {.num_ranks = 1, .num_microbatches = 2};
    const Action f0 = Forward(0, 0);
    const Action f1 = Forward(0, 1);
    EXPECT_EQ(test::Verdict(shape, {{f0, f1, Backward(0, 1), Backward(0, 0)}}),
              "plan of rank 0, line 3 (D0.1): " + rule + "(got line 3, wanted a line after 4 (D0.0))");
    EXPECT_EQ(test::Verdict(shape, {{f0, f1, BackwardInput(0, 0), BackwardInput(0, 1), BackwardWeight(0, 1),
                                     BackwardWeight(0, 0)}}),
              "plan of rank 0, line 5 (W0.1): " + rule + "(got line 5, wanted a line after 6 (W0.0))");
    // A norm's weight has its gradient from B.
    EXPECT_EQ(test::Verdict(shape, {{f0, f1, BackwardInput(0, 1), BackwardInput(0, 0), BackwardWeight(0, 0),
                                     BackwardWeight(0, 1)}}),
              "plan of rank 0, line 3 (B0.1): " + rule + "(got line 3, wanted a line after 4 (B0.0))");
    // D adds what W adds.
    EXPECT_EQ(test::Verdict(shape, {{f0, f1, BackwardInput(0, 0), Backward(0, 1), BackwardWeight(0, 0)}}),
              "plan of rank 0, line 4 (D0.1): " + rule + "(got line 4, wanted a line after 5 (W0.0))");
    EXPECT_EQ(test::Verdict(shape, {{f1, f0, BackwardInput(0, 0), BackwardWeight(0, 0), Backward(0, 1)}}), "ok");
}

TEST_F(PlanChecker, RefusesASlotThatIsFull) {
    std::swap(At(1, 2), At(1, 4));
    std::swap(At(1, 3), At(1, 4));  // RF1.0, RF1.1, F1.0, D1.0, F1.1, D1.1
    EXPECT_EQ(Verdict(),
              "plan of rank 1, line 2 (RF1.1/0): a slot is filled after what was in it has been consumed (got line 2, "
              "wanted a line after 3 (F1.0))");
    At(1, 2).slot = 1;
    EXPECT_EQ(Verdict(), "ok");
}

TEST_F(PlanChecker, RefusesEndsOfALinkThatDisagree) {
    At(0, 1).microbatch = 1;
    At(0, 2).microbatch = 0;  // sent as 1, 0; received as 0, 1
    EXPECT_EQ(Verdict(),
              "plan of rank 1, line 1 (RF1.0/0): takes message 1 from rank 0, which is another (got the forward of "
              "micro-batch 1 for stage 1, wanted the forward of micro-batch 0 for stage 1)");
}

TEST_F(PlanChecker, SaysWhoWaitsForWhomInADeadlock) {
    // Rank 0 wants the gradient of 0 before it sends 1; rank 1 wants 1 before it goes back.
    plans_ = {{Forward(0, 0), Receive(Direction::kBackward, 0, 0, 0), Backward(0, 0), Forward(0, 1),
               Receive(Direction::kBackward, 0, 1, 0), Backward(0, 1)},
              {Receive(Direction::kForward, 0, 0, 0), Forward(0, 0), Receive(Direction::kForward, 0, 1, 0),
               Forward(0, 1), Backward(0, 0), Backward(0, 1)}};
    EXPECT_EQ(
        Verdict(),
        "plan of rank 1, line 4 (F1.1): deadlock: waits for the forward of micro-batch 1 for stage 1 from rank 0, "
        "which waits at line 3 (D0.0) for the backward of micro-batch 0 for stage 0 from rank 1, which waits here");
}

TEST(PlanCheckerOfMoreRanks, LeavesThoseOutOfADeadlockThatOnlySuffer) {
    const PipelineShape shape = {.num_ranks = 3, .num_microbatches = 2};
    const ActionList all_forwards_first = {Forward(0, 0), Forward(0, 1), Backward(0, 0), Backward(0, 1)};
    const ActionList in_turn = {Forward(0, 0), Backward(0, 0), Forward(0, 1), Backward(0, 1)};
    // As above between two of three ranks; the third waits for them.
    for (const int waiting : {0, 1}) {
        std::vector<ActionList> plans(3, all_forwards_first);
        plans[static_cast<size_t>(waiting)] = in_turn;
        PlaceReceives(shape, &plans);
        const std::string verdict = Verdict(shape, plans);
        EXPECT_NE(verdict.find(StrCat("for the forward of micro-batch 1 for stage ", waiting + 1)), std::string::npos)
            << verdict;
        EXPECT_NE(verdict.find(StrCat("for the backward of micro-batch 0 for stage ", waiting)), std::string::npos)
            << verdict;
        const int other = waiting == 0 ? 2 : 0;
        EXPECT_EQ(verdict.find(StrCat("rank ", other)), std::string::npos) << verdict;
    }
}

TEST(PlanCheckerOfMoreRanks, FindsARankThatWaitsForItself) {
    const PipelineShape shape = {.num_ranks = 1, .num_microbatches = 1, .num_chunks = 2};
    std::vector<ActionList> plans = {{Forward(1, 0), Forward(0, 0), Backward(1, 0), Backward(0, 0)}};
    PlaceReceives(shape, &plans);
    EXPECT_EQ(
        Verdict(shape, plans),
        "plan of rank 0, line 2 (F1.0): deadlock: waits for the forward of micro-batch 0 for stage 1 from rank 0, "
        "which waits here");
}

TEST(PlanCheckerOfMoreRanks, TakesForwardsAlone) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 1, .num_chunks = 2};
    std::vector<ActionList> plans = {{Forward(0, 0), Forward(1, 0)}, {Forward(0, 0), Forward(1, 0)}};
    PlaceReceives(shape, &plans);
    EXPECT_EQ(Verdict(shape, plans, PlanKind::kForwardOnly), "ok");
    EXPECT_EQ(CheckPlans(shape, plans, PlanKind::kForwardOnly, {}).peak_chunks, (std::vector<int>{0, 0}));
    EXPECT_EQ(Verdict(shape, plans),
              "plan of rank 0: a backward is missing, or there are two (got none, wanted D0.0, or B0.0 and W0.0)");
    plans[1].push_back(Backward(1, 0));
    EXPECT_EQ(Verdict(shape, plans, PlanKind::kForwardOnly),
              "plan of rank 1, line 5 (D3.0): a forward-only plan has no backward");
    plans[1].back() = Receive(Direction::kBackward, 0, 0, 0);
    EXPECT_EQ(Verdict(shape, plans, PlanKind::kForwardOnly),
              "plan of rank 1, line 5 (RB1.0/0): a forward-only plan has no backward");
}

TEST(PlanSizes, OfBothEndsOfALinkAgree) {
    const PipelineShape shape = {.num_ranks = 3, .num_microbatches = 2};
    const std::vector<ActionList> plans = PlacedPlans(ScheduleGPipe(), shape);
    const BoundarySpec first = {.shape = {4, 7}, .dtype = DataType::kBFloat16};
    const BoundarySpec second = {.shape = {4, 9}};
    PlanSizes sizes = {.sent = {first, second}, .received = {first, second}};
    EXPECT_EQ(Verdict(shape, plans, PlanKind::kTraining, sizes), "ok");
    sizes.received[1].dtype = DataType::kBFloat16;
    EXPECT_EQ(Verdict(shape, plans, PlanKind::kTraining, sizes),
              "plan of rank 2, line 2 (F2.0): stage 1 on rank 1 sends another tensor than stage 2 expects (got [4, 9] "
              "float32, wanted [4, 9] bfloat16)");
    sizes.sent[0].shape = {7, 4};
    EXPECT_EQ(Verdict(shape, plans, PlanKind::kTraining, sizes),
              "plan of rank 1, line 2 (F1.0): stage 0 on rank 0 sends another tensor than stage 1 expects (got [7, 4] "
              "bfloat16, wanted [4, 7] bfloat16)");
}

TEST(PlanSizes, GiveThePeakOfActivationsAndSlots) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 2};
    const BoundarySpec boundary = {.shape = {2, 5}, .dtype = DataType::kBFloat16};
    EXPECT_EQ(boundary.size_bytes(), 20);
    const PlanSizes sizes = {.sent = {boundary}, .received = {boundary}, .activation_bytes = {1000, 300}};
    // 1F1B. Rank 0 at RB0.0: two activations and a gradient. Rank 1 at F1.0: one activation and its input.
    std::vector<ActionList> plans = PlacedPlans(Schedule1F1B(), shape);
    EXPECT_EQ(CheckPlans(shape, plans, PlanKind::kTraining, sizes).peak_bytes, (std::vector<int64_t>{2020, 320}));
    // Two slots each way: both receives are posted early.
    AllocateSlots(shape, &plans);
    EXPECT_EQ(CheckPlans(shape, plans, PlanKind::kTraining, sizes).peak_bytes, (std::vector<int64_t>{2040, 340}));
    // GPipe: rank 1 holds both activations.
    plans = PlacedPlans(ScheduleGPipe(), shape);
    EXPECT_EQ(CheckPlans(shape, plans, PlanKind::kTraining, sizes).peak_bytes, (std::vector<int64_t>{2020, 620}));
}

TEST(PlanSizes, CountASplitBackwardUntilItsWeightGradient) {
    const PipelineShape shape = {.num_ranks = 1, .num_microbatches = 2};
    const std::vector<ActionList> plans = {{Forward(0, 0), BackwardInput(0, 0), Forward(0, 1), BackwardInput(0, 1),
                                            BackwardWeight(0, 0), BackwardWeight(0, 1)}};
    const PlanReport report = CheckPlans(shape, plans, PlanKind::kTraining, {.activation_bytes = {7}});
    EXPECT_EQ(report.peak_chunks, (std::vector<int>{2}));
    EXPECT_EQ(report.peak_bytes, (std::vector<int64_t>{14}));
}

/// A line of schedules.md: which maps deadlock, with receives directly before their consumers.
TEST(Deadlocks, MeetTheGoldenMapsOfEachOrder) {
    const std::vector<std::pair<std::string, StreamMap>> maps = {{"one_stream", StreamMap::kOne},
                                                                 {"comm_stream", StreamMap::kCommunication},
                                                                 {"send_recv_streams", StreamMap::kSendReceive},
                                                                 {"per_direction_streams", StreamMap::kPerDirection},
                                                                 {"per_edge_streams", StreamMap::kPerEdge}};
    int num_compared = 0;
    for (auto& [name, numbers, file] : GoldenPlans()) {
        std::vector<ActionList> plans = file.plans;
        PlaceReceives(file.shape, &plans);
        for (const auto& [key, map] : maps) {
            EXPECT_EQ(Deadlocks(file.shape, plans, map), numbers.at("deadlocks").at(key).get<bool>())
                << name << " " << key;
            ++num_compared;
        }
    }
    EXPECT_EQ(num_compared, 22 * 5);
}

TEST(Deadlocks, ComeOfAReceiveThatIsMissing) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 1};
    std::vector<ActionList> plans = PlacedPlans(ScheduleGPipe(), shape);
    EXPECT_FALSE(Deadlocks(shape, plans, StreamMap::kPerEdge));
    plans[1].erase(plans[1].begin());
    EXPECT_TRUE(Deadlocks(shape, plans, StreamMap::kPerEdge));
}

TEST(PlanHash, DiffersForEveryDifferentPlan) {
    const PipelineShape shape = {.num_ranks = 2, .num_microbatches = 3, .num_chunks = 2};
    const std::vector<ActionList> plans = PlacedPlans(ScheduleLoopedBFS(), shape);
    const uint64_t hash = PlanHash(shape, plans);
    EXPECT_EQ(hash, PlanHash(shape, plans));
    PipelineShape same = shape;
    same.rank_of_stage = {0, 1, 0, 1};
    EXPECT_EQ(hash, PlanHash(same, plans));
    same.rank_of_stage = {0, 1, 1, 0};
    EXPECT_NE(hash, PlanHash(same, plans));

    const auto hash_with = [&](void (*change)(Action*)) {
        std::vector<ActionList> changed = plans;
        change(&changed[1].back());
        return PlanHash(shape, changed);
    };
    EXPECT_NE(hash, hash_with([](Action* action) { action->kind = ActionKind::kBackwardInput; }));
    EXPECT_NE(hash, hash_with([](Action* action) { action->chunk += 1; }));
    EXPECT_NE(hash, hash_with([](Action* action) { action->microbatch -= 256; }));
    EXPECT_NE(hash, hash_with([](Action* action) { action->direction = Direction::kBackward; }));
    EXPECT_NE(hash, hash_with([](Action* action) { action->slot = 1 << 24; }));

    std::vector<ActionList> moved = plans;  // the last action of rank 0 becomes the first of rank 1
    moved[1].insert(moved[1].begin(), moved[0].back());
    moved[0].pop_back();
    EXPECT_NE(hash, PlanHash(shape, moved));
    std::swap(moved[0], moved[1]);
    EXPECT_NE(hash, PlanHash(shape, moved));
}

TEST(LargePlans, AreCheckedInWellUnderHalfASecond) {
    const PipelineShape shape = {.num_ranks = 8, .num_microbatches = 256, .num_chunks = 3};
    const auto begin = std::chrono::steady_clock::now();
    std::vector<ActionList> plans = PlacedPlans(ScheduleInterleaved1F1B(), shape);
    AllocateSlots(shape, &plans);
    CheckPlans(shape, plans, PlanKind::kTraining, {});
    EXPECT_FALSE(Deadlocks(shape, plans, StreamMap::kPerEdge));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(seconds.count(), 0.5);
}

}  // namespace
}  // namespace infini_train::nn::parallel::test
