#pragma once

#include <memory>
#include <string>
#include <vector>

#include "example/common/flags.h"
#include "example/common/model.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/comm/process_place.h"
#include "infini_train/include/nn/parallel/pp/memory_prediction.h"
#include "infini_train/include/nn/parallel/pp/pipeline_schedule.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train {

/// How a run is spread over its ranks, decided before any of them starts. All ranks of a process share it.
struct PipelineSetup {
    comm::MeshShape mesh = {};
    nn::parallel::PipelineShape shape = {};
    std::string schedule_name = {};
    std::shared_ptr<nn::parallel::PipelineSchedule> schedule = nullptr;
    nn::parallel::StageLayout layout = {};
    std::string layout_note = {};     // what --pipeline_layout auto measured and chose
    comm::ProcessPlace process = {};  // of this process among those of the run
    int threads_per_rank = 0;         // 0: a share of the cores

    /// Rows of a step, over all replicas.
    int64_t rows_per_step(int64_t batch_size) const { return batch_size * shape.num_microbatches * mesh.data; }
};

/// Throws Error for what cannot be: ranks that do not divide, a schedule and chunks, a layout, a batch.
PipelineSetup MakePipelineSetup(const ProgramOptions& options, const ModelSpec& model,
                                const comm::ProcessPlace& process);

/// The chunks of a rank of the pipeline, without values.
std::vector<std::shared_ptr<nn::Module>> BuildChunks(const PipelineSetup& setup, const ModelSpec& model, int rank,
                                                     const std::shared_ptr<nn::DropoutPosition>& position,
                                                     const Device& device);
std::shared_ptr<optimizers::Optimizer> MakeOptimizer(const ProgramOptions& options, const TensorList& parameters);
std::shared_ptr<nn::Module> MakeLoss(const ModelSpec& model);

/// What each rank of a pipeline will need. Allocates nothing.
nn::parallel::MemoryPrediction PredictMemory(const PipelineSetup& setup, const ModelSpec& model,
                                             const ProgramOptions& options);

/// --print_plan: the timeline at unit costs, its bubble, and the memory of each rank.
void PrintPlan(const PipelineSetup& setup, const nn::parallel::MemoryPrediction& prediction);
/// --plan_json
void WritePlanJson(const std::string& path, const PipelineSetup& setup,
                   const nn::parallel::MemoryPrediction& prediction);

}  // namespace infini_train
