#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"

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
        const int stage = StageOf(chunk);
        for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
            const int after = StageAfter(stage, direction);
            if (0 <= after && after < num_stages()) {
                const Link link = {shape_.RankOf(after), direction};
                if (!senders_.contains(link)) {
                    senders_[link] = group_->OpenSender(link.first, direction);
                }
            }
            const int before = StageBefore(stage, direction);
            if (0 <= before && before < num_stages()) {
                const Link link = {shape_.RankOf(before), direction};
                if (!receivers_.contains(link)) {
                    receivers_[link] = group_->OpenReceiver(link.first, direction);
                }
            }
        }
    }
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
    return *senders_.at({shape_.RankOf(StageAfter(stage, direction)), direction});
}

comm::Receiver& PipelineStage::ReceiverFor(int stage, Direction direction) {
    return *receivers_.at({shape_.RankOf(StageBefore(stage, direction)), direction});
}

}  // namespace infini_train::nn::parallel
