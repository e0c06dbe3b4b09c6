#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"
#include "infini_train/include/nn/parallel/pp/pipeline_shape.h"
#include "infini_train/include/optimizer/optimizer.h"
#include "test/support/tiny_model.h"

namespace infini_train::test {

/// A few steps of AdamW on a tiny model: what is learned, and how that is spread over ranks.
struct PipelineCase {
    TinyModel model = {};
    DataType dtype = DataType::kFloat32;
    int num_microbatches = 2;            // of a replica
    int64_t num_rows = 2;                // of a micro-batch
    std::vector<int64_t> lengths = {8};  // of the rows of step i: lengths[i % size]
    int num_steps = 5;
    float max_norm = 0.05f;  // small enough to clip in every step
    bool evaluates = false;  // after each step, on other rows and another number of micro-batches

    int num_ranks = 1;  // of the pipeline
    int num_replicas = 1;
    int num_chunks = 1;
    std::string schedule = "gpipe";  // a name, or the path of a plan file
    int threads_per_rank = 1;        // of OpenMP
    DeviceType device = DeviceType::kCPU;
    comm::Transport transport = comm::Transport::kAuto;
};

/// For messages: every member that is not as it is by default or that the pipeline is about.
std::string ToString(const PipelineCase& run);

/// Shape of the pipeline; who holds which stage is the schedule's to say.
nn::parallel::PipelineShape ShapeOf(const PipelineCase& run, const nn::parallel::PipelineSchedule& schedule);
/// The chunks of a rank, without values. Throws Error for more stages than layers.
std::vector<std::shared_ptr<nn::Module>> MakeChunks(const PipelineCase& run, const nn::parallel::PipelineShape& shape,
                                                    int rank, const std::shared_ptr<nn::DropoutPosition>& position,
                                                    const Device& device);
std::shared_ptr<optimizers::Optimizer> MakeAdamW(const TensorList& parameters);
/// Of a step, over all replicas.
TinyRows RowsOfStep(const PipelineCase& run, int step, const Device& device);

/// This rank's part of the model with its values.
std::unique_ptr<nn::parallel::PipelineParallel> MakePipeline(
    const PipelineCase& run, const comm::Mesh& mesh, const std::shared_ptr<nn::parallel::PipelineSchedule>& schedule);

/// Everything as bits, so that == is equality to the bit.
struct RunNumbers {
    std::vector<uint32_t> losses = {};       // of each step
    std::vector<uint32_t> grad_norms = {};   // before clipping
    std::vector<uint32_t> eval_losses = {};  // empty without evaluation
    /// Name, and bytes of the values and of the float32 master where there is one, in the order of the model. A tied
    /// parameter is there as often as there are copies.
    std::vector<std::pair<std::string, std::string>> parameters = {};
};

struct RankRun {
    RunNumbers numbers = {};
    int64_t num_elements = 0;  // of the parameters of this rank
    int64_t peak_bytes = 0;
    int64_t live_bytes = 0;
};

void TakeParameters(const nn::Module& module, RunNumbers* numbers);

/// The steps on one rank, by test/support/reference_step.h.
RunNumbers RunReference(const PipelineCase& run);
/// What one rank of a pipeline does.
RankRun RunOnRank(const PipelineCase& run, const comm::Mesh& mesh,
                  const std::shared_ptr<nn::parallel::PipelineSchedule>& schedule);
/// On as many threads as there are ranks; by rank of the world.
std::vector<RankRun> RunPipeline(const PipelineCase& run);

/// In what the ranks differ from the reference; empty when no bit does: the losses and norms on every rank, each
/// parameter on one rank of each replica, a tied one of several stages on the two that hold it.
std::string Difference(const PipelineCase& run, const RunNumbers& reference, const std::vector<RankRun>& ranks);

}  // namespace infini_train::test
