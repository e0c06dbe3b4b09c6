#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "example/common/metrics.h"
#include "example/common/rank_report.h"
#include "example/common/run_log.h"
#include "example/common/run_plan.h"
#include "example/common/saver.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/data/token_dataset.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train {

/// The training of a rank, from a fresh start or from a checkpoint to the last step or to a signal. Collective.
class Trainer {
 public:
    Trainer(const RunPlan& plan, const comm::Mesh& mesh,
            const std::shared_ptr<nn::parallel::PipelineParallel>& pipeline);

    /// Throws Error where a loss is not finite, and whatever a rank may throw.
    void Run();

 private:
    bool prints() const { return mesh_.rank == 0; }
    void PrintBatch() const;
    /// The numbers of a step that this rank knows, without those of other ranks.
    StepMetrics TrainOneStep(int64_t step);
    double Mfu(double tokens_per_s) const;
    float ValidationLoss();
    bool IsValidationDue(int64_t step, bool is_last) const;
    /// Throws, or says that the step was skipped.
    void HandleNonFinite(const StepMetrics& metrics);
    void PrintMemory(const std::vector<RankReport>& reports) const;
    /// The timeline and the report.
    void WriteFiles(const std::vector<RankReport>& reports) const;

    const RunPlan& plan_;
    const ProgramOptions& options_;
    const PipelineSetup& setup_;
    const comm::Mesh& mesh_;
    std::shared_ptr<nn::parallel::PipelineParallel> pipeline_;
    std::shared_ptr<nn::Module> loss_;
    std::shared_ptr<optimizers::Optimizer> optimizer_;
    data::DataPosition position_ = {};  // of the next step's rows
    int64_t first_step_ = 0;            // steps that the run has behind it
    std::unique_ptr<RunLog> log_;
    std::unique_ptr<Saver> saver_;
    int num_nonfinite_ = 0;  // steps in a row
};

}  // namespace infini_train
