#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/dropout.h"
#include "infini_train/include/nn/parallel/pp/pipeline_shape.h"

namespace infini_train::nn::parallel {

/// This rank's chunks of a model, and its links to the ranks that hold their neighbours.
class PipelineStage {
 public:
    struct Options {
        std::vector<std::shared_ptr<Module>> chunks = {};             // the stages of this rank, in their order
        std::vector<int> rank_of_stage = {};                          // empty: stages in a loop over the ranks
        std::shared_ptr<DropoutPosition> dropout_position = nullptr;  // of the chunks; null: they drop nothing
    };
    /// CHECKs that no chunk is null and that there are as many as rank_of_stage gives this rank. Every rank of the
    /// pipeline constructs its own, with as many chunks.
    PipelineStage(Options options, const comm::Mesh& mesh);

    /// The shape of this pipeline for a number of micro-batches.
    PipelineShape ShapeFor(int num_microbatches) const;
    int rank() const { return group_->rank(); }
    int num_chunks() const { return static_cast<int>(options_.chunks.size()); }
    /// Of the whole model, over all ranks.
    int num_stages() const { return shape_.num_stages(); }
    int StageOf(int chunk) const { return shape_.StageOf(rank(), chunk); }
    bool is_first(int chunk) const { return StageOf(chunk) == 0; }
    bool is_last(int chunk) const { return StageOf(chunk) + 1 == num_stages(); }
    /// The rank of the pipeline that computes the loss.
    int last_rank() const { return shape_.RankOf(num_stages() - 1); }
    const std::vector<std::shared_ptr<Module>>& chunks() const { return options_.chunks; }
    const std::shared_ptr<DropoutPosition>& dropout_position() const { return options_.dropout_position; }
    comm::ProcessGroup& group() const { return *group_; }
    const Device& device() const { return device_; }

    /// One chunk on one micro-batch: {the model's input} or {what the stage before it gave} -> {its output}. A stage
    /// passes one tensor on: Error for another number.
    TensorList ForwardOneChunk(const TensorList& inputs, int chunk);

    /// The links of a stage of this rank: to the rank of the stage that follows in the direction, and from the one that
    /// precedes in it.
    comm::Sender& SenderFrom(int stage, comm::Direction direction);
    comm::Receiver& ReceiverFor(int stage, comm::Direction direction);

 private:
    Options options_;
    PipelineShape shape_;
    std::shared_ptr<comm::ProcessGroup> group_;
    Device device_;
    comm::LinkEnds links_;
};

}  // namespace infini_train::nn::parallel
