#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "example/common/rank_report.h"
#include "example/common/run_log.h"
#include "example/common/run_plan.h"
#include "infini_train/include/checkpoint/checkpoint_writer.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/data/token_dataset.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train {

/// When a run saves, and what becomes of a checkpoint that cannot be written: --save, --save_every, --on_save_error.
/// All ranks call its methods at the same steps.
class Saver {
 public:
    Saver(const RunPlan& plan, const comm::Mesh& mesh, const std::vector<std::shared_ptr<nn::Module>>& chunks,
          const std::shared_ptr<const optimizers::Optimizer>& optimizer, RunLog& log);

    /// RankReport::save_state of this rank.
    int64_t state() const;
    /// After a step: ends a checkpoint that all ranks have written, and begins one where it is due. position: of the
    /// next step's rows.
    void AfterStep(int64_t step, const data::DataPosition& position, const std::vector<RankReport>& reports,
                   bool is_last);
    /// Waits for the checkpoint under way.
    void Finish();
    /// At the end of a run, when all else is done: throws Error where its last checkpoint could not be written.
    void ThrowIfNotSaved() const;
    /// The newest complete one that this run has written, or gone on from; empty where there is none.
    const std::string& last_checkpoint() const { return last_checkpoint_; }

 private:
    /// Throws Error where a save that failed ends the run.
    void Commit();

    const ProgramOptions& options_;
    RunLog& log_;
    std::map<std::string, std::string> settings_;
    std::string last_checkpoint_;
    std::string last_error_;  // of the last save; empty: it is there
    bool is_writing_ = false;
    std::unique_ptr<checkpoint::CheckpointWriter> writer_;  // null: nothing is saved
};

}  // namespace infini_train
