#pragma once

#include <map>
#include <memory>
#include <vector>

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/include/nn/parallel/pp/grad_reduction.h"
#include "infini_train/include/nn/parallel/pp/pipeline_schedule.h"
#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train::nn::parallel {

class RecordedStep;

/// A model spread over the ranks of a pipeline, as one of them sees it: its own chunks. One a rank; every method that
/// computes is collective over the pipeline and its replicas, and gives each rank the same result.
///
/// The numbers are those of one rank that holds all chunks and accumulates the same micro-batches, bit for bit,
/// whatever the schedule. With replicas the sums over them run in rank order (1e-5 of one rank's in float32).
class PipelineParallel : public Module {
 public:
    struct Options {
        int num_microbatches = 1;                                     // of TrainStep
        float max_grad_norm = 0.0f;                                   // 0: no clipping
        std::shared_ptr<PipelineSchedule> schedule = nullptr;         // null: GPipe
        std::vector<int> rank_of_stage = {};                          // empty: stage s on rank s % P
        std::shared_ptr<DropoutPosition> dropout_position = nullptr;  // what the Dropout modules of the chunks share
        bool records_steps = false;                                   // on one rank with a stream: see TrainStep
    };
    /// The chunks have their weights and compute dtype (Module::To) already, and names of parameters that are those of
    /// the whole model. Throws Error for a schedule that cannot do this shape.
    PipelineParallel(std::vector<std::shared_ptr<Module>> chunks, const comm::Mesh& mesh, Options options);

    /// One optimizer step. input, target [M * rows of a micro-batch, ...]: the same shapes on every rank; the first
    /// stage reads the input, the last one the target. With replicas each passes its own rows. loss_fn: {output,
    /// target} -> {sum, count} over valid targets; or {a scalar}, which counts each micro-batch alike. dtype: that of
    /// the chunks; a float input is converted to it. optimizer: over Parameters() or a part of them, constructed once.
    /// Returns the mean loss: all sums over all counts. The length of the rows may change from step to step. Throws
    /// Error when the rows do not make M micro-batches, when ranks disagree, and when another rank has failed.
    ///
    /// records_steps: after two steps on rows of a length the work of a step, but the optimizer's, is recorded and then
    /// replayed (a CUDA graph): the same numbers, next to nothing for the host to do. The optimizer must stay the same;
    /// dropout would drop the same elements each time; nobody knows when an action ran, so that GatherTimeline is
    /// empty.
    float TrainStep(const std::shared_ptr<Tensor>& input, const std::shared_ptr<Tensor>& target,
                    const std::shared_ptr<optimizers::Optimizer>& optimizer, const std::shared_ptr<Module>& loss_fn,
                    DataType dtype);
    /// The mean loss, nothing learned. num_microbatches 0: that of the Options; a replica may have no rows at all.
    float EvalStep(const std::shared_ptr<Tensor>& input, const std::shared_ptr<Tensor>& target,
                   const std::shared_ptr<Module>& loss_fn, DataType dtype, int num_microbatches = 0);
    /// The model's output without gradients: {input} -> {output} on the rank of the last stage, {} on the others.
    TensorList Forward(const TensorList& inputs) override;

    const PipelineStage& stage() const { return stage_; }
    const GradReduction& grad_reduction() const { return reduction_; }
    /// Of the last TrainStep: global L2 norm of the gradient before clipping.
    float grad_norm() const { return grad_norm_; }
    /// The checked plan of the last TrainStep.
    const PlanReport& plan_report() const { return plan_report_; }
    /// The last TrainStep as it ran, of all ranks; ms from its first action. Collective over the pipeline.
    Timeline GatherTimeline() const;

 private:
    /// What a plan and the links depend on.
    struct PlanKey {
        PlanKind kind = PlanKind::kTraining;
        int num_microbatches = 0;
        BoundarySpec input = {};
        BoundarySpec target = {};

        auto operator<=>(const PlanKey&) const = default;
    };
    struct CheckedPlan {
        ActionList actions = {};  // of this rank
        std::vector<BoundarySpec> boundaries = {};
        PlanReport report = {};
    };

    struct RecordedSteps {
        int num_runs = 0;  // without a recording
        std::shared_ptr<RecordedStep> step = nullptr;
    };

    /// Made, checked and compared across the ranks when it is first needed.
    const CheckedPlan& PlanFor(const PlanKey& key, Module* loss_fn);
    /// The micro-batches of a step; CHECKs dtype against that of the chunks.
    StepData Split(const std::shared_ptr<Tensor>& input, const std::shared_ptr<Tensor>& target, int num_microbatches,
                   const std::shared_ptr<Module>& loss_fn, DataType dtype) const;
    void SetTraining(bool training);
    /// The step on rows for which a recording may be made.
    StepResult RunRecorded(const PlanKey& key, const CheckedPlan& plan, const StepData& data,
                           optimizers::Optimizer& optimizer);

    Options options_;
    int replica_;  // of data parallelism
    PipelineStage stage_;
    GradReduction reduction_;
    std::map<PlanKey, CheckedPlan> plans_;
    std::map<PlanKey, RecordedSteps> recorded_;
    PlanReport plan_report_;
    float grad_norm_ = 0.0f;
    std::vector<TimelineEvent> events_;
};

}  // namespace infini_train::nn::parallel
