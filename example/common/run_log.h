#pragma once

#include <cstdint>
#include <deque>
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
    /// A line for the user, and for the report.
    void Note(const std::string& line);
    /// A line for the user alone.
    void Tell(const std::string& line);

    /// Of the steps that the metrics file kept, and of those of this run.
    const RunHistory& history() const { return history_; }
    struct TextOfStep {
        int64_t step = 0;
        std::string text = {};
    };
    /// The last ones.
    const std::deque<TextOfStep>& texts() const { return texts_; }
    /// The first ones.
    const std::vector<std::string>& notes() const { return notes_; }

 private:
    bool is_on_;
    RunHistory history_;
    std::deque<TextOfStep> texts_;
    std::vector<std::string> notes_;
    SpikeDetector spikes_;
    MetricsFile metrics_file_;
    TensorBoardWriter tensorboard_;
    ProgressLine progress_;
};

}  // namespace infini_train
