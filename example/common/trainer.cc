#include "example/common/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "example/common/batch.h"
#include "example/common/mfu.h"
#include "example/common/non_finite.h"
#include "example/common/run_report.h"
#include "example/common/sample_text.h"
#include "example/common/stop_signal.h"
#include "example/common/timeline_files.h"
#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

constexpr int kMaxNonFinite = 10;  // with so many in a row the weights, or the data, are not going to recover

/// A NaN without a sign, which says nothing and would be written as "-nan".
float WithoutSignOfNan(float value) {
    return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
}

}  // namespace

Trainer::Trainer(const RunPlan& plan, const comm::Mesh& mesh,
                 const std::shared_ptr<nn::parallel::PipelineParallel>& pipeline)
    : plan_(plan),
      options_(*plan.options),
      setup_(*plan.setup),
      mesh_(mesh),
      pipeline_(pipeline),
      loss_(MakeLoss(*plan.model)),
      optimizer_(MakeOptimizer(options_, pipeline->Parameters())) {
    if (plan.start != nullptr) {
        checkpoint::LoadMoments(options_.load, pipeline->stage().chunks(), *optimizer_);
        position_ = {.epoch = plan.start->position.epoch, .row = plan.start->position.row};
        first_step_ = plan.start->step;
    }
    log_ = std::make_unique<RunLog>(plan, mesh, first_step_);
    saver_ = std::make_unique<Saver>(plan, mesh, pipeline->stage().chunks(), optimizer_, *log_);
}

void Trainer::Run() {
    StepsBegin();
    if (prints()) {
        PrintBatch();
    }
    if (first_step_ >= options_.num_iteration) {
        log_->Note(StrCat("the checkpoint has ", first_step_, " steps already; --num_iteration ",
                          options_.num_iteration, " trains no more"));
    }
    std::vector<RankReport> reports = GatherReports({.peak_bytes = mesh_.device.allocator->stats().peak_bytes}, mesh_);
    int signal = 0;
    for (int64_t step = first_step_ + 1; step <= options_.num_iteration; ++step) {
        StepMetrics metrics = TrainOneStep(step);
        reports = GatherReports({.peak_bytes = mesh_.device.allocator->stats().peak_bytes,
                                 .save_state = saver_->state(),
                                 .stop_signal = StopSignal()},
                                mesh_);
        metrics.peak_bytes = LargestPeak(reports);
        log_->Step(metrics);
        HandleNonFinite(metrics);
        signal = StopSignalOf(reports);
        const bool is_last = step == options_.num_iteration || signal != 0;
        saver_->AfterStep(step, position_, reports, is_last);
        if (signal == 0 && IsValidationDue(step, is_last)) {
            log_->Validation(step, ValidationLoss());
        }
        if (!is_last && options_.sample_every > 0 && step % options_.sample_every == 0) {
            log_->Text(step, SampleText(plan_, mesh_, *pipeline_));
        }
        if (signal != 0) {
            log_->Note(StrCat(SignalName(signal), ": stops after step ", step,
                              options_.save.empty() ? "; nothing is saved without --save" : ""));
            break;
        }
    }
    saver_->Finish();
    if (first_step_ < options_.num_iteration) {  // the prediction is of a step
        PrintMemory(reports);
    }
    if (signal == 0 && plan_.tokenizer != nullptr) {
        log_->Text(options_.num_iteration, SampleText(plan_, mesh_, *pipeline_));
    }
    WriteFiles(reports);
    saver_->ThrowIfNotSaved();
}

void Trainer::PrintBatch() const {
    const int64_t rows_per_step = setup_.rows_per_step(options_.batch_size);
    const int num_microbatches = setup_.shape.num_microbatches;
    std::printf("%lld tokens a step in %d micro-batch%s of %lld x %lld%s; %lld steps an epoch\n",
                static_cast<long long>(rows_per_step * options_.sequence_length), num_microbatches,
                num_microbatches == 1 ? "" : "es", static_cast<long long>(options_.batch_size),
                static_cast<long long>(options_.sequence_length),
                mesh_.shape.data == 1 ? "" : StrCat(" on each of ", mesh_.shape.data, " replicas").c_str(),
                static_cast<long long>(plan_.train->num_rows() / rows_per_step));
    const std::string drop_note = plan_.train->DropNote(rows_per_step);
    if (!drop_note.empty()) {
        std::printf("note: %s\n", drop_note.c_str());
    }
    if (plan_.start != nullptr) {
        std::printf("goes on after step %lld of %s\n", static_cast<long long>(first_step_), options_.load.c_str());
    }
}

StepMetrics Trainer::TrainOneStep(int64_t step) {
    const auto start = std::chrono::steady_clock::now();
    optimizer_->set_lr(optimizers::LearningRate(options_.lr, step - 1));
    const int64_t rows_per_step = setup_.rows_per_step(options_.batch_size);
    const int64_t rows_of_replica = rows_per_step / mesh_.shape.data;
    const Batch batch = ReadStepBatch(*plan_.train, position_, rows_per_step, mesh_.position.data * rows_of_replica,
                                      rows_of_replica, mesh_.device);
    if (!options_.overfit_single_batch) {
        position_ = plan_.train->NextPosition(position_, rows_per_step);
    }
    const float loss = pipeline_->TrainStep(batch.inputs, batch.targets, optimizer_, loss_, options_.dtype);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    const double tokens_per_s = static_cast<double>(rows_per_step * options_.sequence_length) / elapsed.count() * 1e3;
    return {.step = step,
            .loss = WithoutSignOfNan(loss),
            .grad_norm = WithoutSignOfNan(pipeline_->grad_norm()),
            .lr = optimizer_->lr(),
            .ms = elapsed.count(),
            .tokens_per_s = tokens_per_s,
            .mfu = Mfu(tokens_per_s)};
}

double Trainer::Mfu(double tokens_per_s) const {
    // Ranks may share GPUs: as many count as there are on all hosts, hosts being alike.
    const int num_hosts = setup_.process.num_processes / setup_.process.num_local;
    const int num_gpus = std::min(mesh_.shape.num_ranks(), num_hosts * NumCudaDevices());
    const double peak = PeakFlops(HardwareName(mesh_.device), options_.dtype) * num_gpus;
    return peak == 0.0 ? 0.0
                       : tokens_per_s *
                             FlopsPerToken(plan_.prediction->num_elements, plan_.model->num_layers,
                                           plan_.model->num_channels, options_.sequence_length) /
                             peak;
}

bool Trainer::IsValidationDue(int64_t step, bool is_last) const {
    return plan_.validation != nullptr &&
           (is_last || (options_.val_loss_every > 0 && step % options_.val_loss_every == 0));
}

/// Over the first val_batches micro-batches, or as many as there are, shared out among the replicas.
float Trainer::ValidationLoss() {
    const int64_t num_batches =
        std::min<int64_t>(options_.val_batches, plan_.validation->num_rows() / options_.batch_size);
    const int64_t begin = num_batches * mesh_.position.data / mesh_.shape.data;
    const int64_t end = num_batches * (mesh_.position.data + 1) / mesh_.shape.data;
    const Batch batch =
        ReadBatch(*plan_.validation, begin * options_.batch_size, (end - begin) * options_.batch_size, mesh_.device);
    return pipeline_->EvalStep(batch.inputs, batch.targets, loss_, options_.dtype, static_cast<int>(end - begin));
}

void Trainer::HandleNonFinite(const StepMetrics& metrics) {
    if (std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm)) {
        num_nonfinite_ = 0;
        return;
    }
    const std::string where = StrCat("step ", metrics.step);
    const std::string got = StrCat("loss ", metrics.loss, ", norm ", metrics.grad_norm);
    if (options_.skips_nonfinite && ++num_nonfinite_ < kMaxNonFinite) {
        log_->Note(where + " changes nothing: " + got);
        return;
    }
    saver_->Finish();
    std::string what = "the loss or the gradient norm is not finite";
    what += options_.skips_nonfinite ? StrCat(", for the ", kMaxNonFinite, "th time in a row") : "";
    const NonFinite culprit = FindNonFinite(pipeline_->stage().chunks(), mesh_);
    what += culprit.what.empty() ? "" : "; " + culprit.what;
    const std::string last = saver_->last_checkpoint();
    what += last.empty() ? "; there is no checkpoint of this run" : "; the last good checkpoint is " + last;
    if (mesh_.rank != culprit.rank) {
        mesh_.world->Barrier();  // which ends with the error of that rank: the first, whose rank the line names
    }
    throw Error({.where = where, .what = what, .got = got, .kind = Error::Kind::kRuntime});
}

void Trainer::PrintMemory(const std::vector<RankReport>& reports) const {
    for (size_t rank = 0; rank < reports.size(); ++rank) {
        const auto stage_rank = static_cast<size_t>(comm::PositionOf(static_cast<int>(rank), mesh_.shape).pipeline);
        const auto measured = static_cast<double>(reports[rank].peak_bytes);
        const auto predicted = static_cast<double>(plan_.prediction->peak_bytes[stage_rank]);
        char line[160];
        std::snprintf(line, sizeof(line), "rank %d: peak memory %.1f MiB, predicted %.1f MiB (%+.1f %%)",
                      static_cast<int>(rank), measured / 1048576.0, predicted / 1048576.0,
                      100.0 * (predicted / measured - 1.0));
        log_->Tell(line);
    }
}

void Trainer::WriteFiles(const std::vector<RankReport>& reports) const {
    const bool wants_report = !options_.report.empty();
    if (options_.timeline.empty() && !wants_report) {
        return;
    }
    const nn::parallel::Timeline timeline = pipeline_->GatherTimeline();
    if (!prints()) {
        return;
    }
    WriteTimelineFiles(options_.timeline, setup_.shape, timeline);
    if (wants_report) {
        std::vector<int64_t> peak_bytes;
        for (const RankReport& report : reports) {
            peak_bytes.push_back(report.peak_bytes);
        }
        WriteRunReport(plan_, mesh_.device, *log_, peak_bytes, TimelineFigure(setup_.shape, timeline));
    }
}

}  // namespace infini_train
