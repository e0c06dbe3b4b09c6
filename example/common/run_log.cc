#include "example/common/run_log.h"

#include <cstdio>

namespace infini_train {
namespace {

// What a report shows of a run of any length.
constexpr size_t kMaxTexts = 12;
constexpr size_t kMaxNotes = 50;

}  // namespace

RunLog::RunLog(const RunPlan& plan, const comm::Mesh& mesh, int64_t first_step)
    : is_on_(mesh.rank == 0),
      spikes_({}),
      metrics_file_(
          is_on_ ? plan.options->metrics_file : "", first_step,
          {.on_step = [this](const StepMetrics& metrics) { history_.AddStep(metrics); },
           .on_validation = [this](int64_t step, float val_loss) { history_.AddValidation(step, val_loss); }}),
      tensorboard_(is_on_ ? plan.options->tensorboard : "", first_step),
      progress_({.num_steps = plan.options->num_iteration, .mesh = mesh.shape}) {
    if (is_on_) {
        tensorboard_.WriteConfiguration(FlagsFingerprint());
    }
}

void RunLog::Step(const StepMetrics& metrics) {
    if (!is_on_) {
        return;
    }
    progress_.Show(metrics);
    metrics_file_.WriteStep(metrics);
    tensorboard_.WriteStep(metrics);
    history_.AddStep(metrics);
    if (const std::string note = spikes_.Add(metrics.step, metrics.loss); !note.empty()) {
        Note(note);
    }
}

void RunLog::Validation(int64_t step, float val_loss) {
    if (!is_on_) {
        return;
    }
    char line[80];
    std::snprintf(line, sizeof(line), "step %4lld | val loss %.6f", static_cast<long long>(step),
                  static_cast<double>(val_loss));
    progress_.Print(line);
    metrics_file_.WriteValidation(step, val_loss);
    tensorboard_.WriteValidation(step, val_loss);
    history_.AddValidation(step, val_loss);
}

void RunLog::Text(int64_t step, const std::string& text) {
    if (!is_on_) {
        return;
    }
    progress_.Clear();
    if (step > 0) {
        std::printf("step %4lld | text:\n", static_cast<long long>(step));
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::printf("\n");
    std::fflush(stdout);
    texts_.push_back({.step = step, .text = text});
    if (texts_.size() > kMaxTexts) {
        texts_.pop_front();
    }
}

void RunLog::Note(const std::string& line) {
    Tell("note: " + line);
    if (is_on_ && notes_.size() < kMaxNotes) {
        notes_.push_back(line);
    }
}

void RunLog::Tell(const std::string& line) {
    if (is_on_) {
        progress_.Print(line);
    }
}

}  // namespace infini_train
