#pragma once

#include <memory>

#include "infini_train/include/core/recording.h"
#include "infini_train/include/nn/parallel/pp/pipeline_schedule.h"

namespace infini_train::nn::parallel {

/// A training step of a single rank on a device with streams, recorded once: its gradients are then one piece of work
/// to enqueue. The optimizer's step is not in it, since the learning rate changes.
class RecordedStep {
 public:
    /// Records a step on micro-batches of these shapes, after steps on them that ran: what is made when it is first
    /// needed is there.
    RecordedStep(PipelineStage& stage, GradReduction& reduction, const PipelineSchedule& schedule,
                 const ActionList& plan, const StepData& data, const optimizers::Optimizer& optimizer,
                 const PipelineSchedule::StepOptions& options);

    StepResult Run(const GradReduction& reduction, const StepData& data, optimizers::Optimizer& optimizer);

 private:
    StepData data_;  // its tensors are where the recorded work reads
    StepGradients gradients_;
    std::unique_ptr<Recording> recording_;
};

}  // namespace infini_train::nn::parallel
