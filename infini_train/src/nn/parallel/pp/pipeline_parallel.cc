#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/kernels/cast.h"
#include "infini_train/include/nn/parallel/pp/passes.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/src/nn/parallel/pp/recorded_step.h"
#include "infini_train/src/nn/parallel/pp/stage_inference.h"
#include "infini_train/src/nn/parallel/pp/warm_up.h"

namespace infini_train::nn::parallel {
namespace {

BoundarySpec SpecOf(const Tensor& tensor) {
    return {.shape = tensor.shape(), .dtype = tensor.dtype()};
}

std::string ToString(const BoundarySpec& spec) {
    return StrCat(infini_train::ToString(spec.shape), " ", Name(spec.dtype));
}

/// Rows [m rows / num, (m + 1) rows / num) of each micro-batch.
TensorList SplitRows(const std::shared_ptr<Tensor>& x, int num_microbatches, const char* name) {
    const int64_t num_rows = x->dim(0);
    if (num_microbatches == 0 || num_rows % num_microbatches != 0) {
        throw Error({.where = name,
                     .what = "the rows do not make whole micro-batches",
                     .got = StrCat(num_rows, " rows"),
                     .wanted = StrCat("a multiple of ", num_microbatches)});
    }
    const int64_t rows = num_rows / num_microbatches;
    TensorList microbatches;
    for (int64_t m = 0; m < num_microbatches; ++m) {
        microbatches.push_back(x->Slice(m * rows, (m + 1) * rows));
    }
    return microbatches;
}

/// A line an event, times in whole nanoseconds.
std::string ToText(const std::vector<TimelineEvent>& events) {
    std::ostringstream text;
    for (const TimelineEvent& event : events) {
        text << static_cast<int>(event.action.kind) << ' ' << event.action.chunk << ' ' << event.action.microbatch;
        for (const double ms : {event.wait_begin_ms, event.start_ms, event.end_ms}) {
            text << ' ' << std::llround(ms * 1e6);
        }
        text << '\n';
    }
    return text.str();
}

std::vector<TimelineEvent> EventsFromText(const std::string& text) {
    std::istringstream in(text);
    std::vector<TimelineEvent> events;
    int kind = 0;
    TimelineEvent event;
    int64_t wait_begin = 0;
    int64_t start = 0;
    int64_t end = 0;
    while (in >> kind >> event.action.chunk >> event.action.microbatch >> wait_begin >> start >> end) {
        event.action.kind = static_cast<ActionKind>(kind);
        event.wait_begin_ms = static_cast<double>(wait_begin) * 1e-6;
        event.start_ms = static_cast<double>(start) * 1e-6;
        event.end_ms = static_cast<double>(end) * 1e-6;
        events.push_back(event);
    }
    return events;
}

/// Throws where a rank of the group has another text than the first.
void CheckAgreement(comm::ProcessGroup& group, const std::string& what, const std::string& text) {
    const std::vector<std::string> texts =
        comm::WaitingAt("to agree on " + what, [&] { return group.ExchangeText(text); });
    for (size_t rank = 1; rank < texts.size(); ++rank) {
        if (texts[rank] != texts[0]) {
            throw Error({.where = StrCat("rank ", group.world_ranks()[rank]),
                         .what = what + " differs from that of rank " + StrCat(group.world_ranks()[0]),
                         .got = texts[rank],
                         .wanted = texts[0]});
        }
    }
}

}  // namespace

PipelineParallel::PipelineParallel(std::vector<std::shared_ptr<Module>> chunks, const comm::Mesh& mesh, Options options)
    : options_(std::move(options)),
      replica_(mesh.position.data),
      stage_({.chunks = std::move(chunks),
              .rank_of_stage = options_.rank_of_stage,
              .dropout_position = options_.dropout_position},
             mesh),
      reduction_(stage_, mesh) {
    for (const std::shared_ptr<Module>& chunk : stage_.chunks()) {
        RegisterModule("", chunk);
    }
    if (options_.schedule == nullptr) {
        options_.schedule = std::make_shared<ScheduleGPipe>();
    }
    CHECK_GE(options_.num_microbatches, 1);
    options_.schedule->CheckShape(stage_.ShapeFor(options_.num_microbatches));
    CHECK(!options_.records_steps || (mesh.world->size() == 1 && StreamOf(mesh.device) != nullptr))
        << "steps are recorded on one rank, on a device with a stream";
}

StepData PipelineParallel::Split(const std::shared_ptr<Tensor>& input, const std::shared_ptr<Tensor>& target,
                                 int num_microbatches, const std::shared_ptr<Module>& loss_fn, DataType dtype) const {
    CHECK_NOTNULL(input.get());
    CHECK_NOTNULL(target.get());
    CHECK_NOTNULL(loss_fn.get());
    for (const std::shared_ptr<Module>& chunk : stage_.chunks()) {
        const TensorList parameters = chunk->Parameters();
        if (!parameters.empty() && parameters[0]->dtype() != dtype) {
            throw Error({.where = "dtype",
                         .what = "the chunks compute in another dtype; call Module::To before the optimizer is made",
                         .got = std::string(Name(parameters[0]->dtype())),
                         .wanted = std::string(Name(dtype))});
        }
    }
    std::shared_ptr<Tensor> converted = input;
    if (IsFloat(input->dtype()) && input->dtype() != dtype) {
        converted = Tensor::Empty(input->shape(), dtype, input->device());
        kernels::cast(input->device().type, *input, *converted);
    }
    return {.inputs = SplitRows(converted, num_microbatches, "input"),
            .targets = SplitRows(target, num_microbatches, "target"),
            .loss_fn = loss_fn,
            .first_sample = static_cast<uint64_t>(replica_) * static_cast<uint64_t>(input->dim(0))};
}

void PipelineParallel::SetTraining(bool training) {
    if (options_.dropout_position != nullptr) {
        options_.dropout_position->training = training;
    }
}

const PipelineParallel::CheckedPlan& PipelineParallel::PlanFor(const PlanKey& key, Module* loss_fn) {
    if (const auto found = plans_.find(key); found != plans_.end()) {
        return found->second;
    }
    const PipelineShape shape = stage_.ShapeFor(key.num_microbatches);
    std::vector<ActionList> plans =
        key.kind == PlanKind::kTraining ? options_.schedule->PlanAllRanks(shape) : ForwardOnlyPlans(shape);
    PlaceReceives(shape, &plans);
    AllocateSlots(shape, &plans);
    CheckAgreement(stage_.group(), "a micro-batch",
                   StrCat(key.num_microbatches, " of input ", ToString(key.input), ", target ", ToString(key.target)));
    CheckAgreement(stage_.group(), "the plan's hash", StrCat(PlanHash(shape, plans)));
    const std::vector<StageSpec> specs = comm::WaitingAt(
        "for the shapes of the stages", [&] { return InferStages(stage_, key.input, loss_fn, key.target); });
    PlanSizes sizes;
    for (const StageSpec& spec : specs) {
        sizes.activation_bytes.push_back(spec.activation_bytes);
        sizes.sent.push_back(spec.output);
    }
    sizes.sent.pop_back();  // the last stage sends nothing on
    sizes.received = sizes.sent;
    CheckedPlan checked = {.boundaries = sizes.sent, .report = CheckPlans(shape, plans, key.kind, sizes)};
    checked.actions = std::move(plans[static_cast<size_t>(stage_.rank())]);
    if (key.kind == PlanKind::kTraining && stage_.group().size() > 1 && StreamOf(stage_.device()) != nullptr) {
        WarmUp(stage_, checked.boundaries, key.input, loss_fn, key.target);
    }
    return plans_.emplace(key, std::move(checked)).first->second;
}

float PipelineParallel::TrainStep(const std::shared_ptr<Tensor>& input, const std::shared_ptr<Tensor>& target,
                                  const std::shared_ptr<optimizers::Optimizer>& optimizer,
                                  const std::shared_ptr<Module>& loss_fn, DataType dtype) {
    CHECK_NOTNULL(optimizer.get());
    CHECK(autograd::GradMode::is_enabled()) << "TrainStep under a NoGradGuard";
    StepData data = Split(input, target, options_.num_microbatches, loss_fn, dtype);
    SetTraining(true);
    const PlanKey key = {.kind = PlanKind::kTraining,
                         .num_microbatches = options_.num_microbatches,
                         .input = SpecOf(*data.inputs[0]),
                         .target = SpecOf(*data.targets[0])};
    const CheckedPlan& plan = PlanFor(key, loss_fn.get());
    data.boundaries = plan.boundaries;
    data.step = static_cast<uint64_t>(optimizer->step());
    const StepResult result = comm::WaitingAt(StrCat("in step ", data.step + 1), [&] {
        return options_.records_steps ? RunRecorded(key, plan, data, *optimizer)
                                      : options_.schedule->Step(stage_, reduction_, plan.actions, data, *optimizer,
                                                                {.max_norm = options_.max_grad_norm}, &events_);
    });
    plan_report_ = plan.report;
    grad_norm_ = result.grad_norm;
    return result.loss;
}

StepResult PipelineParallel::RunRecorded(const PlanKey& key, const CheckedPlan& plan, const StepData& data,
                                         optimizers::Optimizer& optimizer) {
    constexpr int kRunsBefore = 2;  // the first allocates; the second shows that the next one does not
    const PipelineSchedule::StepOptions options = {.max_norm = options_.max_grad_norm};
    RecordedSteps& recorded = recorded_[key];
    if (recorded.step == nullptr && recorded.num_runs++ < kRunsBefore) {
        return options_.schedule->Step(stage_, reduction_, plan.actions, data, optimizer, options, &events_);
    }
    if (recorded.step == nullptr) {
        recorded.step = std::make_shared<RecordedStep>(stage_, reduction_, *options_.schedule, plan.actions, data,
                                                       optimizer, options);
    }
    events_.clear();
    return recorded.step->Run(reduction_, data, optimizer);
}

float PipelineParallel::EvalStep(const std::shared_ptr<Tensor>& input, const std::shared_ptr<Tensor>& target,
                                 const std::shared_ptr<Module>& loss_fn, DataType dtype, int num_microbatches) {
    const autograd::NoGradGuard no_grad;
    CHECK_NOTNULL(input.get());
    return comm::WaitingAt("in an evaluation", [&] {
        StepOutput output;  // nothing without rows
        if (input->dim(0) > 0) {
            StepData data = Split(input, target, num_microbatches > 0 ? num_microbatches : options_.num_microbatches,
                                  loss_fn, dtype);
            SetTraining(false);
            const CheckedPlan& plan = PlanFor({.kind = PlanKind::kForwardOnly,
                                               .num_microbatches = static_cast<int>(data.inputs.size()),
                                               .input = SpecOf(*data.inputs[0]),
                                               .target = SpecOf(*data.targets[0])},
                                              loss_fn.get());
            data.boundaries = plan.boundaries;
            output = options_.schedule->StepMicrobatches(stage_, plan.actions, data);
        }
        const kernels::LossMean loss = comm::WaitingAt(
            "for the loss", [&] { return reduction_.ReduceLoss(output.loss_sums, output.loss_counts); });
        return reduction_.Read({loss.mean})[0];
    });
}

TensorList PipelineParallel::Forward(const TensorList& inputs) {
    const autograd::NoGradGuard no_grad;
    const auto& [input] = autograd::Unpack<1>(inputs);
    SetTraining(false);
    const CheckedPlan& plan =
        PlanFor({.kind = PlanKind::kForwardOnly, .num_microbatches = 1, .input = SpecOf(*input)}, nullptr);
    return options_.schedule->StepMicrobatches(stage_, plan.actions, {.inputs = {input}, .boundaries = plan.boundaries})
        .outputs;
}

Timeline PipelineParallel::GatherTimeline() const {
    Timeline timeline;
    const std::vector<std::string> texts =
        comm::WaitingAt("for the timeline", [&] { return stage_.group().ExchangeText(ToText(events_)); });
    for (const std::string& text : texts) {
        timeline.push_back(EventsFromText(text));
    }
    double begin_ms = std::numeric_limits<double>::infinity();
    for (const std::vector<TimelineEvent>& events : timeline) {
        begin_ms = events.empty() ? begin_ms : std::min(begin_ms, events.front().wait_begin_ms);
    }
    for (std::vector<TimelineEvent>& events : timeline) {
        for (TimelineEvent& event : events) {
            event.wait_begin_ms -= begin_ms;
            event.start_ms -= begin_ms;
            event.end_ms -= begin_ms;
        }
    }
    return timeline;
}

}  // namespace infini_train::nn::parallel
