#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/passes.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "test/support/pipeline_case.h"

namespace infini_train::nn::parallel {
namespace {

using infini_train::test::PipelineCase;
using infini_train::test::TinyRows;

/// The loss of the tiny model that fails from a micro-batch on.
class FailingLoss : public Module {
 public:
    explicit FailingLoss(int num_good) : num_good_(num_good) {}

    TensorList Forward(const TensorList& inputs) override {
        if (num_good_-- == 0) {
            throw Error({.what = "the loss fails"});
        }
        return loss_->Forward(inputs);
    }

 private:
    std::shared_ptr<Module> loss_ = infini_train::test::MakeTinyLoss();
    int num_good_;
};

/// Runs it on all ranks, of which one is to fail; what rank 0 throws.
std::string ErrorOfRank0(const comm::MeshShape& shape, const std::function<void(const comm::Mesh&)>& work) {
    std::string text;
    EXPECT_THROW(comm::RunRanks({.shape = shape, .timeout_s = 60.0, .threads_per_rank = 1},
                                [&](const comm::Mesh& mesh) {
                                    try {
                                        work(mesh);
                                    } catch (const comm::WaitError& error) {
                                        text = mesh.rank == 0 ? error.what() : text;
                                        throw;
                                    }
                                }),
                 Error);
    return text;
}

// The line is that of the plan as the checker counts it, receives too.
TEST(PipelineWaits, NameTheLineOfThePlan) {
    const PipelineCase run = {.model = {.num_layers = 2}, .num_microbatches = 3, .num_ranks = 2};
    // With 1F1B rank 1 has sent the first gradient back before the second loss fails.
    const std::vector<std::pair<std::string, int>> first_missing = {{"gpipe", 0}, {"1f1b", 1}};
    for (const auto& [name, microbatch] : first_missing) {
        const std::shared_ptr<PipelineSchedule> schedule = MakeSchedule(name);
        const std::string text = ErrorOfRank0({.pipeline = 2}, [&](const comm::Mesh& mesh) {
            const auto pipeline = MakePipeline(run, mesh, schedule);
            const TinyRows rows = RowsOfStep(run, 0, mesh.device);
            pipeline->TrainStep(rows.inputs, rows.targets, infini_train::test::MakeAdamW(pipeline->Parameters()),
                                std::make_shared<FailingLoss>(2), run.dtype);  // one call is for the shapes
        });
        const PipelineShape shape = ShapeOf(run, *schedule);
        std::vector<ActionList> plans = schedule->PlanAllRanks(shape);
        PlaceReceives(shape, &plans);
        AllocateSlots(shape, &plans);
        const auto waits = std::find_if(plans[0].begin(), plans[0].end(), [m = microbatch](const Action& action) {
            return action.kind == ActionKind::kBackward && action.microbatch == m;
        });
        EXPECT_EQ(text, StrCat("rank 0: rank 1 failed while this one waited for backward of micro-batch ", microbatch,
                               " for stage 0 [2, 8, 16] float32 from rank 1, at line ", waits - plans[0].begin() + 1,
                               " of its plan: D0.", microbatch, ", in step 1"));
    }
}

TEST(PipelineWaits, NameTheEvaluation) {
    const PipelineCase run = {.model = {.num_layers = 2}, .num_microbatches = 1, .num_ranks = 2};
    const auto evaluate = [&](int num_good_losses) {
        return ErrorOfRank0({.pipeline = 2}, [&](const comm::Mesh& mesh) {
            const auto pipeline = MakePipeline(run, mesh, MakeSchedule("gpipe"));
            const TinyRows rows = RowsOfStep(run, 0, mesh.device);
            pipeline->EvalStep(rows.inputs, rows.targets, std::make_shared<FailingLoss>(num_good_losses), run.dtype);
            throw Error({.what = "nobody fails"});
        });
    };
    const std::string failed = "rank 0: rank 1 failed while this one waited for rank 1 in ";
    // The first loss is for the shapes.
    EXPECT_EQ(evaluate(0), failed + "exchange of texts of ranks 0, 1, for the shapes of the stages, in an evaluation");
    EXPECT_EQ(evaluate(1), failed + "broadcast from rank 1 of ranks 0, 1, for the loss, in an evaluation");
}

/// What rank 0 says when rank 1 fails after the first so many parts of what follows the micro-batches of a step.
std::string ErrorAfter(int num_parts, const PipelineCase& run) {
    const ScheduleGPipe schedule;
    const PipelineShape shape = ShapeOf(run, schedule);
    std::vector<ActionList> plans = schedule.PlanAllRanks(shape);
    PlaceReceives(shape, &plans);
    return ErrorOfRank0({.data = run.num_replicas, .pipeline = run.num_ranks}, [&](const comm::Mesh& mesh) {
        const auto position = std::make_shared<DropoutPosition>();
        const auto chunks = MakeChunks(run, shape, mesh.position.pipeline, position, mesh.device);
        infini_train::test::SetValues(*chunks[0], run.dtype);
        PipelineStage stage({.chunks = chunks}, mesh);
        GradReduction reduction(stage, mesh);
        const TinyRows rows = RowsOfStep(run, 0, mesh.device);
        const StepData data = {.inputs = {rows.inputs},
                               .targets = {rows.targets},
                               .loss_fn = infini_train::test::MakeTinyLoss(),
                               .boundaries = {{.shape = {rows.inputs->dim(0), run.lengths[0], run.model.num_channels},
                                               .dtype = run.dtype}}};
        const auto optimizer = infini_train::test::MakeAdamW(chunks[0]->Parameters());
        const ActionList& plan = plans[static_cast<size_t>(mesh.position.pipeline)];
        if (mesh.rank == 0) {
            schedule.ComputeGradients(stage, reduction, plan, data, *optimizer, {});
            return;
        }
        const StepOutput output = schedule.StepMicrobatches(stage, plan, data);
        if (num_parts > 0) {
            reduction.ReduceLoss(output.loss_sums, output.loss_counts);
        }
        if (num_parts > 1) {
            reduction.ReduceTied();
        }
        if (num_parts > 2) {
            reduction.ReduceReplicas();
        }
        throw Error({.what = "fails"});
    });
}

TEST(PipelineWaits, NameThePartOfTheStepThatFollowsTheMicrobatches) {
    const PipelineCase tied = {.model = {.num_layers = 2}, .num_microbatches = 1, .num_ranks = 2};
    const PipelineCase replicas = {.model = {.num_layers = 1}, .num_microbatches = 1, .num_replicas = 2};
    const std::string failed = "rank 0: rank 1 failed while this one waited for rank 1 in ";
    EXPECT_EQ(ErrorAfter(0, tied), failed + "broadcast from rank 1 of ranks 0, 1, for the loss of the step");
    EXPECT_EQ(ErrorAfter(1, tied), failed + "all-reduce of ranks 0, 1, for the gradients of tied parameters");
    EXPECT_EQ(ErrorAfter(2, tied), failed + "all-reduce of ranks 0, 1, for the gradient norm");
    EXPECT_EQ(ErrorAfter(0, replicas), failed + "all-gather of ranks 0, 1, for the loss of the step");
    EXPECT_EQ(ErrorAfter(2, replicas), failed + "all-reduce of ranks 0, 1, for the gradients of the replicas");
}

}  // namespace
}  // namespace infini_train::nn::parallel
