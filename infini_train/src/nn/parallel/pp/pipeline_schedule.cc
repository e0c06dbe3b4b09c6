#include "infini_train/include/nn/parallel/pp/pipeline_schedule.h"

#include <chrono>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/autograd/weight_grad_queue.h"
#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/core/profile_range.h"
#include "infini_train/include/nn/parallel/pp/send_recv.h"

namespace infini_train::nn::parallel {
namespace {

using comm::Direction;
using comm::MessageTag;

double NowMs() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What a rank holds of one chunk and one micro-batch while a plan runs.
struct Cell {
    std::unique_ptr<comm::PendingReceive> input;  // posted, not yet taken
    std::unique_ptr<comm::PendingReceive> grad;
    std::shared_ptr<Tensor> root;  // where the backward starts: the loss, or what ISend returned
    autograd::WeightGradQueue weight_grads;
};

/// One run of one rank's plan.
class PlanRun {
 public:
    PlanRun(PipelineStage* stage, const StepData* data)
        : stage_(stage),
          data_(data),
          num_microbatches_(data->inputs.size()),
          shape_(stage->ShapeFor(static_cast<int>(num_microbatches_))),
          cells_(static_cast<size_t>(stage->num_chunks()) * num_microbatches_) {
        for (int chunk = 0; chunk < stage->num_chunks(); ++chunk) {
            if (stage->is_last(chunk)) {
                TensorList& results = data->loss_fn == nullptr ? output_.outputs : output_.loss_sums;
                results.resize(num_microbatches_);
                output_.loss_counts.resize(num_microbatches_);
            }
        }
        output_.begin = Now();
    }

    void Run(const ActionList& plan) {
        for (size_t i = 0; i < plan.size(); ++i) {
            try {
                Run(plan[i]);
            } catch (const comm::WaitError& error) {
                // A line as the checker counts them.
                throw error.At(StrCat("at line ", i + 1, " of its plan: ", ToString(plan[i], shape_, stage_->rank())));
            }
        }
    }

    StepOutput TakeOutput() { return std::move(output_); }

 private:
    void Run(const Action& action) {
        if (action.kind == ActionKind::kReceive) {
            PostReceive(action);
            return;
        }
        const ProfileRange range(ToString(action, shape_, stage_->rank()));
        start_ = Now();
        ActionTimes times = {.action = action, .wait_begin = start_};
        Compute(action);
        times.start = start_;
        times.end = Now();
        output_.times.push_back(times);
    }

    Moment Now() const {
        Stream* const stream = data_->measures ? StreamOf(stage_->device()) : nullptr;
        return {.host_ms = NowMs(), .event = stream == nullptr ? nullptr : stream->Record(/*with_time=*/true)};
    }

    Cell& CellOf(const Action& action) {
        return cells_[static_cast<size_t>(action.chunk) * num_microbatches_ + static_cast<size_t>(action.microbatch)];
    }

    void PostReceive(const Action& action) {
        const int stage = stage_->StageOf(action.chunk);
        const bool is_forward = action.direction == Direction::kForward;
        const BoundarySpec& boundary = data_->boundaries.at(static_cast<size_t>(is_forward ? stage - 1 : stage));
        Cell& cell = CellOf(action);
        (is_forward ? cell.input : cell.grad) = stage_->ReceiverFor(stage, action.direction)
                                                    .Post({.tag = {action.direction, stage, action.microbatch},
                                                           .shape = boundary.shape,
                                                           .dtype = boundary.dtype});
    }

    void Compute(const Action& action) {
        Cell& cell = CellOf(action);
        switch (action.kind) {
            case ActionKind::kForward:
                Forward(action, &cell);
                break;
            case ActionKind::kBackward:
                Backward(&cell, nullptr);
                break;
            case ActionKind::kBackwardInput:
                Backward(&cell, &cell.weight_grads);
                break;
            case ActionKind::kBackwardWeight:
                cell.weight_grads.Run();
                break;
            case ActionKind::kReceive:
                LOG(FATAL) << "a receive computes nothing";
        }
    }

    /// A message, and until when this rank waited for it.
    std::shared_ptr<Tensor> Take(std::unique_ptr<comm::PendingReceive> receive) {
        std::shared_ptr<Tensor> message = receive->Wait();
        start_ = Now();
        return message;
    }

    void Forward(const Action& action, Cell* cell) {
        const int chunk = action.chunk;
        const auto microbatch = static_cast<size_t>(action.microbatch);
        if (DropoutPosition* position = stage_->dropout_position().get(); position != nullptr) {
            position->step = data_->step;
            position->first_sample =
                data_->first_sample + static_cast<uint64_t>(data_->inputs[microbatch]->dim(0)) * microbatch;
        }
        std::shared_ptr<Tensor> x =
            stage_->is_first(chunk) ? data_->inputs[microbatch]->Detach() : Receive(action, cell);
        TensorList outputs = stage_->ForwardOneChunk({std::exchange(x, nullptr)}, chunk);
        if (!stage_->is_last(chunk)) {
            const int stage = stage_->StageOf(chunk);
            cell->root = ISend(outputs[0], stage_->SenderFrom(stage, Direction::kForward),
                               MessageTag{Direction::kForward, stage + 1, action.microbatch},
                               [this, cell] { return Take(std::move(cell->grad)); });
        } else if (data_->loss_fn == nullptr) {
            output_.outputs[microbatch] = outputs[0]->Detach();
        } else {
            outputs.push_back(data_->targets[microbatch]);
            cell->root = Loss(std::move(outputs), microbatch);
        }
        if (!autograd::GradMode::is_enabled()) {
            cell->root = nullptr;
        }
    }

    std::shared_ptr<Tensor> Receive(const Action& action, Cell* cell) {
        const int stage = stage_->StageOf(action.chunk);
        comm::Sender* sender = &stage_->SenderFrom(stage, Direction::kBackward);
        const MessageTag tag = {Direction::kBackward, stage - 1, action.microbatch};
        const std::unique_ptr<comm::PendingReceive> receive = std::move(cell->input);
        std::shared_ptr<Tensor> x =
            IRecv(*receive, [sender, tag](std::shared_ptr<Tensor> grad) { sender->Send(std::move(grad), tag); });
        start_ = Now();
        return x;
    }

    /// Keeps sum and count, and returns the sum with its tape.
    std::shared_ptr<Tensor> Loss(TensorList output_and_target, size_t microbatch) {
        const TensorList loss = data_->loss_fn->Forward(std::exchange(output_and_target, {}));
        CHECK(loss.size() == 1 || loss.size() == 2) << "a loss is {sum, count} or {a scalar}";
        CHECK(loss[0]->num_elements() == 1 && loss[0]->dtype() == DataType::kFloat32)
            << "a loss is one float32, not " << infini_train::ToString(loss[0]->shape()) << " "
            << Name(loss[0]->dtype());
        output_.loss_sums[microbatch] = loss[0]->View({1});
        output_.loss_counts[microbatch] =
            loss.size() == 2 ? loss[1]->View({1}) : Tensor::FromVector(std::vector<int64_t>{1}, {1}, loss[0]->device());
        return loss[0];
    }

    static void Backward(Cell* cell, autograd::WeightGradQueue* queue) {
        const std::shared_ptr<Tensor> root = std::exchange(cell->root, nullptr);
        CHECK_NOTNULL(root.get());
        // A loss has the gradient 1. What ISend returned has no elements, and its gradient none either.
        autograd::Backward({root}, {root->num_elements() == 0 ? root->Detach() : nullptr}, queue);
    }

    PipelineStage* stage_;
    const StepData* data_;
    size_t num_microbatches_;
    PipelineShape shape_;
    std::vector<Cell> cells_;
    StepOutput output_;
    Moment start_;  // of the computation of the action that runs
};

}  // namespace

std::vector<ActionList> PipelineSchedule::PlanAllRanks(const PipelineShape& shape) const {
    CheckShape(shape);
    std::vector<ActionList> plans;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        plans.push_back(Plan(shape, rank));
    }
    return plans;
}

StepOutput PipelineSchedule::StepMicrobatches(PipelineStage& stage, const ActionList& plan,
                                              const StepData& data) const {
    PlanRun run(&stage, &data);
    run.Run(plan);
    return run.TakeOutput();
}

StepResult PipelineSchedule::Step(PipelineStage& stage, GradReduction& reduction, const ActionList& plan,
                                  const StepData& data, optimizers::Optimizer& optimizer, const StepOptions& options,
                                  std::vector<TimelineEvent>* events) const {
    const StepGradients gradients = ComputeGradients(stage, reduction, plan, data, optimizer, options);
    const StepResult result = ApplyGradients(reduction, gradients, optimizer);
    *events = TimelineEvents(gradients.output);
    return result;
}

StepGradients PipelineSchedule::ComputeGradients(PipelineStage& stage, GradReduction& reduction, const ActionList& plan,
                                                 const StepData& data, const optimizers::Optimizer& optimizer,
                                                 const StepOptions& options) const {
    CHECK_NOTNULL(data.loss_fn.get());
    reduction.Clear();
    StepGradients gradients = {.output = StepMicrobatches(stage, plan, data)};
    comm::WaitingAt("for the loss of the step", [&] {
        gradients.loss = reduction.ReduceLoss(gradients.output.loss_sums, gradients.output.loss_counts);
    });
    comm::WaitingAt("for the gradients of tied parameters", [&] { reduction.ReduceTied(); });
    comm::WaitingAt("for the gradients of the replicas", [&] { reduction.ReduceReplicas(); });
    comm::WaitingAt("for the gradient norm",
                    [&] { gradients.grad = reduction.Scale(optimizer, *gradients.loss.num_valid, options.max_norm); });
    return gradients;
}

StepResult PipelineSchedule::ApplyGradients(const GradReduction& reduction, const StepGradients& gradients,
                                            optimizers::Optimizer& optimizer) {
    optimizer.Step(*gradients.grad.scale);
    const std::vector<float> results = reduction.Read({gradients.loss.mean, gradients.grad.norm});
    return {.loss = results[0], .grad_norm = results[1]};
}

std::vector<TimelineEvent> TimelineEvents(const StepOutput& output) {
    const Moment& begin = output.begin;
    const auto ms = [&begin](const Moment& moment) {
        return moment.event == nullptr ? moment.host_ms : begin.host_ms + moment.event->MsSince(*begin.event);
    };
    std::vector<TimelineEvent> events;
    for (const ActionTimes& times : output.times) {
        events.push_back({.action = times.action,
                          .wait_begin_ms = ms(times.wait_begin),
                          .start_ms = ms(times.start),
                          .end_ms = ms(times.end)});
    }
    return events;
}

std::vector<ActionList> ForwardOnlyPlans(const PipelineShape& shape) {
    std::vector<ActionList> plans(static_cast<size_t>(shape.num_ranks));
    for (int stage = 0; stage < shape.num_stages(); ++stage) {
        for (int m = 0; m < shape.num_microbatches; ++m) {
            plans[static_cast<size_t>(shape.RankOf(stage))].push_back(
                {.kind = ActionKind::kForward, .chunk = shape.ChunkOf(stage), .microbatch = m});
        }
    }
    return plans;
}

}  // namespace infini_train::nn::parallel
