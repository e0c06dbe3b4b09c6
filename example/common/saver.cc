#include "example/common/saver.h"

#include <algorithm>

#include "example/common/saved_flags.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

using checkpoint::CheckpointWriter;

/// The flags as they took effect: 0 stands for what depends on the number of ranks.
std::map<std::string, std::string> SettingsOf(const RunPlan& plan) {
    std::map<std::string, std::string> settings = SettingsToSave();
    settings["total_batch_size"] =
        StrCat(plan.setup->rows_per_step(plan.options->batch_size) * plan.options->sequence_length);
    return settings;
}

}  // namespace

Saver::Saver(const RunPlan& plan, const comm::Mesh& mesh, const std::vector<std::shared_ptr<nn::Module>>& chunks,
             const std::shared_ptr<const optimizers::Optimizer>& optimizer, RunLog& log)
    : options_(*plan.options), log_(log), settings_(SettingsOf(plan)), last_checkpoint_(plan.options->load) {
    if (!options_.save.empty()) {
        writer_ = std::make_unique<CheckpointWriter>(
            CheckpointWriter::Options{.folder = options_.save, .keep = options_.keep}, plan.model->hf, chunks,
            optimizer, mesh.world);
    }
}

int64_t Saver::state() const {
    return writer_ == nullptr ? 0 : static_cast<int64_t>(writer_->progress());
}

void Saver::AfterStep(int64_t step, const data::DataPosition& position, const std::vector<RankReport>& reports,
                      bool is_last) {
    if (writer_ == nullptr) {
        return;
    }
    const bool is_due = is_last || (options_.save_every > 0 && step % options_.save_every == 0);
    const bool all_have_written = std::none_of(reports.begin(), reports.end(), [](const RankReport& report) {
        return report.save_state == static_cast<int64_t>(CheckpointWriter::Progress::kWriting);
    });
    if (is_writing_ && (all_have_written || is_due)) {
        Commit();
    }
    if (is_due) {
        writer_->Begin({.step = step,
                        .optimizer = options_.use_adamw ? "adamw" : "sgd",
                        .seed = options_.seed,
                        .position = {.epoch = position.epoch, .row = position.row},
                        .settings = settings_});
        is_writing_ = true;
    }
}

void Saver::Finish() {
    if (is_writing_) {
        Commit();
    }
}

void Saver::ThrowIfNotSaved() const {
    if (!last_error_.empty()) {
        throw Error({.where = "--save " + options_.save, .what = last_error_, .kind = Error::Kind::kRuntime});
    }
}

void Saver::Commit() {
    is_writing_ = false;
    const CheckpointWriter::Result result = writer_->Commit();
    last_error_ = result.error;
    if (result.error.empty()) {
        last_checkpoint_ = result.path;
        log_.Tell("saved " + result.path);
        return;
    }
    last_error_ += last_checkpoint_.empty() ? "" : "; the last checkpoint is " + last_checkpoint_;
    if (options_.stops_on_save_error) {
        ThrowIfNotSaved();
    }
    log_.Note("not saved: " + last_error_);
}

}  // namespace infini_train
