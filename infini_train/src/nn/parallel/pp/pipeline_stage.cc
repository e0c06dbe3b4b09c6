#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"

#include <algorithm>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::nn::parallel {
namespace {

using comm::Direction;

/// The stage that follows in a direction.
int StageAfter(int stage, Direction direction) {
    return direction == Direction::kForward ? stage + 1 : stage - 1;
}

int StageBefore(int stage, Direction direction) {
    return direction == Direction::kForward ? stage - 1 : stage + 1;
}

}  // namespace

PipelineStage::PipelineStage(Options options, const comm::Mesh& mesh)
    : options_(std::move(options)), group_(mesh.pipeline), device_(mesh.device) {
    CHECK_NOTNULL(group_.get());
    CHECK(!options_.chunks.empty()) << "a rank of a pipeline has at least one chunk";
    for (const std::shared_ptr<Module>& chunk : options_.chunks) {
        CHECK_NOTNULL(chunk.get());
    }
    shape_ = {.num_ranks = group_->size(), .num_chunks = num_chunks(), .rank_of_stage = options_.rank_of_stage};
    for (int chunk = 0; chunk < num_chunks(); ++chunk) {
        StageOf(chunk);  // CHECKs that there is one
    }
    // Of all ranks, in one order: opening them is collective.
    std::vector<comm::Link> links;
    for (int stage = 0; stage + 1 < num_stages(); ++stage) {
        const int rank = shape_.RankOf(stage);
        const int next = shape_.RankOf(stage + 1);
        for (const comm::Link& link :
             {comm::Link{rank, next, Direction::kForward}, comm::Link{next, rank, Direction::kBackward}}) {
            if (std::find(links.begin(), links.end(), link) == links.end()) {
                links.push_back(link);
            }
        }
    }
    links_ = group_->OpenLinks(links);
}

PipelineShape PipelineStage::ShapeFor(int num_microbatches) const {
    PipelineShape shape = shape_;
    shape.num_microbatches = num_microbatches;
    return shape;
}

TensorList PipelineStage::ForwardOneChunk(const TensorList& inputs, int chunk) {
    TensorList outputs = options_.chunks.at(static_cast<size_t>(chunk))->Forward(inputs);
    if (outputs.size() != 1 || outputs[0] == nullptr) {
        throw Error({.where = StrCat("stage ", StageOf(chunk)),
                     .what = "a stage of a pipeline passes one tensor on",
                     .got = StrCat(outputs.size(), " tensors"),
                     .wanted = "1"});
    }
    return outputs;
}

comm::Sender& PipelineStage::SenderFrom(int stage, Direction direction) {
    return *links_.senders.at({shape_.RankOf(StageAfter(stage, direction)), direction});
}

comm::Receiver& PipelineStage::ReceiverFor(int stage, Direction direction) {
    return *links_.receivers.at({shape_.RankOf(StageBefore(stage, direction)), direction});
}

}  // namespace infini_train::nn::parallel
