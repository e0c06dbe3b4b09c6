#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/loss_total.h"
#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"
#include "infini_train/include/optimizer/grad_scale.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train::nn::parallel {

struct InventoryEntry;

/// What happens to the gradients of a pipeline between its last backward and the optimizer, each a collective of the
/// groups of the mesh. Constructed once the weights are in place: it makes the copies of a tied parameter equal.
class GradReduction {
 public:
    /// Throws Error when a parameter that is marked as shared has not exactly two holders.
    GradReduction(const PipelineStage& stage, const comm::Mesh& mesh);

    /// Forgets the gradients of all parameters of this rank.
    void Clear();
    /// Adds what each use of a tied parameter gave: uses on one stage, then the two stages that hold a copy.
    void ReduceTied();
    /// Sums over the replicas, in their order; once a step.
    void ReduceReplicas();
    /// Mean and count over the micro-batches of all replicas, on the device; the same on every rank. sums and counts:
    /// of each micro-batch, [1] float32 and [1] int64; only those of the last stage's rank are read.
    kernels::LossMean ReduceLoss(const TensorList& sums, const TensorList& counts) const;
    /// Norm over the parameters of all stages in the order of the whole model, those that the optimizers have, a tied
    /// one once: the same bits whatever the layout. num_valid [1] int64.
    optimizers::GradScale Scale(const optimizers::Optimizer& optimizer, const Tensor& num_valid, float max_norm) const;
    /// The values of [1] float32 tensors, in one wait of the host, which ends the step. Throws the Error of a rank that
    /// has failed until then.
    std::vector<float> Read(const TensorList& scalars) const;

    /// Parameters of the whole model, a tied one counted once: tensors and elements.
    int64_t num_parameters() const { return num_parameters_; }
    int64_t num_elements() const { return num_elements_; }

 private:
    /// A parameter of this rank with a copy on another stage, or on another chunk of this rank.
    struct SharedParameter {
        std::shared_ptr<Tensor> tensor;
        std::shared_ptr<Tensor> copy_on_this_rank;    // null: on another rank
        std::shared_ptr<comm::ProcessGroup> holders;  // null: both here
    };
    /// The parameters of a chunk that count in the norm.
    struct ChunkParameters {
        int64_t first_index = 0;  // of the first one in the whole model
        TensorList parameters;
    };
    void FindShared(const std::vector<InventoryEntry>& inventory);
    void NumberParameters(const std::vector<InventoryEntry>& inventory);
    std::shared_ptr<Tensor> FindParameter(const InventoryEntry& entry) const;

    std::vector<std::shared_ptr<Module>> chunks_;
    PipelineShape shape_;
    int last_rank_;
    std::shared_ptr<comm::ProcessGroup> pipeline_;
    std::shared_ptr<comm::ProcessGroup> data_;
    Device device_;
    std::vector<SharedParameter> shared_;
    std::vector<ChunkParameters> counted_;
    int64_t num_parameters_ = 0;
    int64_t num_elements_ = 0;
};

}  // namespace infini_train::nn::parallel
