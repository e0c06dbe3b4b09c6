#include "example/common/run_log.h"

#include <cstdio>

#include "infini_train/include/common/str_cat.h"

namespace infini_train {

RunLog::RunLog(const RunPlan& plan, const comm::Mesh& mesh, int64_t first_step)
    : is_on_(mesh.rank == 0),
      metrics_file_(
          is_on_ ? plan.options->metrics_file : "", first_step,
          {.on_step = [this](const StepMetrics& metrics) { history_.AddStep(metrics); },
           .on_validation = [this](int64_t step, float val_loss) { history_.AddValidation(step, val_loss); }}),
      tensorboard_(is_on_ ? plan.options->tensorboard : "", first_step),
      progress_({.num_steps = plan.options->num_iteration, .mesh = mesh.shape}),
      spikes_({}) {
    if (is_on_ && first_step == 0) {
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
    texts_.push_back(step > 0 ? StrCat("step ", step, ": ", text) : text);
}

void RunLog::Note(const std::string& line) {
    if (is_on_) {
        progress_.Print("note: " + line);
    }
}

}  // namespace infini_train
