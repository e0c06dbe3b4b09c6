#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "example/common/metrics.h"
#include "example/common/progress.h"
#include "example/common/report_history.h"
#include "example/common/run_plan.h"
#include "example/common/tensorboard.h"
#include "infini_train/include/comm/mesh.h"

namespace infini_train {

/// What a run shows and writes of its training: lines on stdout, --metrics_file, --tensorboard. That of rank 0 does it;
/// those of other ranks keep quiet.
class RunLog {
 public:
    /// first_step: steps that the run has behind it already, in the checkpoint that it goes on from.
    RunLog(const RunPlan& plan, const comm::Mesh& mesh, int64_t first_step);

    void Step(const StepMetrics& metrics);
    void Validation(int64_t step, float val_loss);
    /// step 0: of no step, just the text.
    void Text(int64_t step, const std::string& text);
    /// A line for the user.
    void Note(const std::string& line);

    /// Of the steps that the metrics file kept, and of those of this run.
    const RunHistory& history() const { return history_; }
    /// The texts, with their steps.
    const std::vector<std::string>& texts() const { return texts_; }

 private:
    bool is_on_;
    RunHistory history_;
    std::vector<std::string> texts_;
    MetricsFile metrics_file_;
    TensorBoardWriter tensorboard_;
    ProgressLine progress_;
    SpikeDetector spikes_;
};

}  // namespace infini_train
