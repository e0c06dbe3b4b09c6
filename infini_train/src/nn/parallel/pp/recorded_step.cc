#include "infini_train/src/nn/parallel/pp/recorded_step.h"

#include "glog/logging.h"

namespace infini_train::nn::parallel {
namespace {

TensorList EmptyLike(const TensorList& tensors) {
    TensorList result;
    for (const std::shared_ptr<Tensor>& tensor : tensors) {
        result.push_back(Tensor::Empty(tensor->shape(), tensor->dtype(), tensor->device()));
    }
    return result;
}

void Copy(const TensorList& from, const TensorList& to) {
    CHECK_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
        to[i]->CopyFrom(*from[i]);
    }
}

}  // namespace

RecordedStep::RecordedStep(PipelineStage& stage, GradReduction& reduction, const PipelineSchedule& schedule,
                           const ActionList& plan, const StepData& data, const optimizers::Optimizer& optimizer,
                           const PipelineSchedule::StepOptions& options)
    : data_(data) {
    data_.inputs = EmptyLike(data.inputs);
    data_.targets = EmptyLike(data.targets);
    data_.measures = false;  // the actions do not run now
    recording_ = std::make_unique<Recording>(stage.device(), [&] {
        gradients_ = schedule.ComputeGradients(stage, reduction, plan, data_, optimizer, options);
    });
}

StepResult RecordedStep::Run(const GradReduction& reduction, const StepData& data, optimizers::Optimizer& optimizer) {
    Copy(data.inputs, data_.inputs);
    Copy(data.targets, data_.targets);
    recording_->Replay();
    return PipelineSchedule::ApplyGradients(reduction, gradients_, optimizer);
}

}  // namespace infini_train::nn::parallel
