#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/loss_total.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/parallel/pp/action.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/include/nn/parallel/pp/grad_reduction.h"
#include "infini_train/include/nn/parallel/pp/pipeline_shape.h"
#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"
#include "infini_train/include/optimizer/grad_scale.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train::nn::parallel {

/// The micro-batches of a step, as each rank is given them.
struct StepData {
    TensorList inputs = {};                     // used by the first stage
    TensorList targets = {};                    // used by the last stage; empty without a loss
    std::shared_ptr<Module> loss_fn = nullptr;  // {output, target} -> {sum, count}, or {a scalar}; null: no loss
    std::vector<BoundarySpec> boundaries = {};  // [s]: what stage s sends to s + 1
    uint64_t step = 0;                          // dropout depends on it,
    uint64_t first_sample = 0;                  // and on the index in the step of the first row
    bool measures = true;                       // when each action ran
};
/// A moment of the host, and of the device's stream where there is one.
struct Moment {
    double host_ms = 0.0;
    std::shared_ptr<const Event> event = nullptr;
};
struct ActionTimes {
    Action action = {};
    Moment wait_begin = {};
    Moment start = {};
    Moment end = {};
};

/// What this rank has of a step.
struct StepOutput {
    TensorList outputs = {};      // without a loss, on the last stage's rank: of each micro-batch
    TensorList loss_sums = {};    // on the last stage's rank: [1] float32 of each micro-batch
    TensorList loss_counts = {};  // [1] int64; 1 where the loss is a scalar
    Moment begin = {};
    std::vector<ActionTimes> times = {};  // of the compute actions
};
/// In ms of one clock that all ranks of a host share. The device's work is done.
std::vector<TimelineEvent> TimelineEvents(const StepOutput& output);

/// All of a step but the optimizer's, on the device: nobody has waited for it.
struct StepGradients {
    StepOutput output = {};
    kernels::LossMean loss = {};      // over the micro-batches of all replicas
    optimizers::GradScale grad = {};  // what the optimizer multiplies the gradients with
};

struct StepResult {
    float loss = 0.0f;       // sum over all valid targets of the step and of all replicas / their count
    float grad_norm = 0.0f;  // global L2 norm of the gradient of that loss, before clipping
};

/// A way to order the work of a step. A subclass is a planner: a pure function of the shape. What runs a plan is the
/// same for all.
class PipelineSchedule {
 public:
    PipelineSchedule() = default;
    PipelineSchedule(const PipelineSchedule&) = delete;
    PipelineSchedule& operator=(const PipelineSchedule&) = delete;
    virtual ~PipelineSchedule() = default;

    /// Throws Error, with the rule and the numbers, for a shape that the schedule cannot do. Here: more than one chunk
    /// a rank.
    virtual void CheckShape(const PipelineShape& shape) const;
    /// The compute actions of a rank. The shape passes CheckShape.
    virtual ActionList Plan(const PipelineShape& shape, int rank) const = 0;

    /// The compute actions of all ranks, after CheckShape.
    std::vector<ActionList> PlanAllRanks(const PipelineShape& shape) const;

    struct StepOptions {
        float max_norm = 0.0f;  // 0: no clipping
    };
    /// One optimizer step: gradients cleared, StepMicrobatches, gradients of tied parameters and of replicas added, the
    /// optimizer's step on them times min(1, max_norm / (norm + 1e-6)) / number of valid targets. Collective over the
    /// pipeline and its replicas; every rank has the result.
    StepResult Step(PipelineStage& stage, GradReduction& reduction, const ActionList& plan, const StepData& data,
                    optimizers::Optimizer& optimizer, const StepOptions& options,
                    std::vector<TimelineEvent>* events) const;

    /// The first part of a step: up to the gradients of the summed loss, and their scale.
    StepGradients ComputeGradients(PipelineStage& stage, GradReduction& reduction, const ActionList& plan,
                                   const StepData& data, const optimizers::Optimizer& optimizer,
                                   const StepOptions& options) const;
    /// The rest: the optimizer's step, and the one wait for the device.
    static StepResult ApplyGradients(const GradReduction& reduction, const StepGradients& gradients,
                                     optimizers::Optimizer& optimizer);

    /// The one executor: runs this rank's plan, receives placed, on the micro-batches; gradients accumulate in the
    /// parameters. A forward-only plan runs under a NoGradGuard of the caller.
    StepOutput StepMicrobatches(PipelineStage& stage, const ActionList& plan, const StepData& data) const;
};

/// All forwards of every stage, for evaluation and generation: stage by stage, micro-batch by micro-batch.
std::vector<ActionList> ForwardOnlyPlans(const PipelineShape& shape);

}  // namespace infini_train::nn::parallel
