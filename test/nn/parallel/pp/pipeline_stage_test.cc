#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/comm/two_ranks.h"

namespace infini_train::nn::parallel {
namespace {

using comm::Direction;

/// Adds a number of its own, or gives another number of tensors than one.
class Step : public Module {
 public:
    explicit Step(float number, size_t num_outputs = 1) : number_(number), num_outputs_(num_outputs) {}

    TensorList Forward(const TensorList& inputs) override {
        std::vector<float> values = inputs[0]->ToVector<float>();
        for (float& value : values) {
            value += number_;
        }
        const auto output = Tensor::FromVector(values, inputs[0]->shape(), inputs[0]->device());
        return TensorList(num_outputs_, output);
    }

 private:
    float number_;
    size_t num_outputs_;
};

std::shared_ptr<Tensor> Number(float value, const Device& device) {
    return Tensor::FromVector<float>({value}, {1}, device);
}

/// One of two ranks.
PipelineStage MakeStage(const comm::TwoRanks& ranks, int rank, std::vector<std::shared_ptr<Module>> chunks,
                        const std::vector<int>& rank_of_stage = {}) {
    const auto r = static_cast<size_t>(rank);
    return {{.chunks = std::move(chunks), .rank_of_stage = rank_of_stage},
            {.rank = rank, .device = ranks.devices[r], .pipeline = ranks.groups[r]}};
}

std::vector<std::shared_ptr<Module>> TwoChunks() {
    return {std::make_shared<Step>(1.0f), std::make_shared<Step>(10.0f)};
}

TEST(PipelineStage, KnowsWhereItsChunksStand) {
    const comm::TwoRanks ranks;
    const PipelineStage first = MakeStage(ranks, 0, TwoChunks());
    const PipelineStage second = MakeStage(ranks, 1, TwoChunks());
    EXPECT_EQ(first.num_stages(), 4);
    EXPECT_EQ(first.StageOf(0), 0);
    EXPECT_EQ(first.StageOf(1), 2);
    EXPECT_EQ(second.StageOf(0), 1);
    EXPECT_EQ(second.StageOf(1), 3);
    EXPECT_TRUE(first.is_first(0));
    EXPECT_FALSE(first.is_first(1));
    EXPECT_FALSE(second.is_last(0));
    EXPECT_TRUE(second.is_last(1));
    EXPECT_EQ(first.last_rank(), 1);
    EXPECT_EQ(second.ShapeFor(5).num_microbatches, 5);
}

TEST(PipelineStage, TakesItsStagesFromAListToo) {
    const comm::TwoRanks ranks;
    const std::vector<int> there_and_back = {0, 1, 1, 0};
    const PipelineStage stage = MakeStage(ranks, 0, TwoChunks(), there_and_back);
    EXPECT_TRUE(stage.is_first(0));
    EXPECT_TRUE(stage.is_last(1));
    EXPECT_EQ(stage.last_rank(), 0);
}

TEST(PipelineStage, RunsTheChunkThatItIsAskedFor) {
    const comm::TwoRanks ranks;
    PipelineStage stage = MakeStage(ranks, 0, TwoChunks());
    const std::shared_ptr<Tensor> x = Number(5.0f, ranks.devices[0]);
    EXPECT_EQ(stage.ForwardOneChunk({x}, 0)[0]->ToVector<float>()[0], 6.0f);
    EXPECT_EQ(stage.ForwardOneChunk({x}, 1)[0]->ToVector<float>()[0], 15.0f);
}

TEST(PipelineStage, LinksItsChunksToTheirNeighbours) {
    const comm::TwoRanks ranks;
    // Stages 1 and 2 are on rank 1, which so sends to itself.
    const std::vector<int> there_and_back = {0, 1, 1, 0};
    PipelineStage first = MakeStage(ranks, 0, TwoChunks(), there_and_back);
    PipelineStage second = MakeStage(ranks, 1, TwoChunks(), there_and_back);
    const auto pass = [](PipelineStage& from, PipelineStage& to, int stage, Direction direction) {
        const int next = direction == Direction::kForward ? stage + 1 : stage - 1;
        const comm::MessageTag tag = {.direction = direction, .stage = next, .microbatch = 3};
        from.SenderFrom(stage, direction).Send(Number(static_cast<float>(stage), from.device()), tag);
        const auto receive = to.ReceiverFor(next, direction).Post({.tag = tag, .shape = {1}});
        EXPECT_EQ(receive->Wait()->ToVector<float>()[0], static_cast<float>(stage));
    };
    pass(first, second, 0, Direction::kForward);
    pass(second, second, 1, Direction::kForward);
    pass(second, first, 2, Direction::kForward);
    pass(first, second, 3, Direction::kBackward);
    pass(second, second, 2, Direction::kBackward);
    pass(second, first, 1, Direction::kBackward);
}

TEST(PipelineStage, PassesOneTensorOn) {
    for (const size_t num_outputs : {0, 2}) {
        const comm::TwoRanks ranks;
        PipelineStage stage = MakeStage(ranks, 1, {std::make_shared<Step>(1.0f, num_outputs)});
        const std::string error = comm::ErrorOf([&] { stage.ForwardOneChunk({Number(5.0f, ranks.devices[1])}, 0); });
        EXPECT_EQ(error, "stage 1: a stage of a pipeline passes one tensor on (got " + std::to_string(num_outputs) +
                             " tensors, wanted 1)");
    }
}

TEST(PipelineStageDeathTest, HasNoChunkThatIsNull) {
    const comm::TwoRanks ranks;
    EXPECT_DEATH(MakeStage(ranks, 0, {std::make_shared<Step>(1.0f), nullptr}), "Must be non NULL");
    EXPECT_DEATH(MakeStage(ranks, 0, {}), "at least one chunk");
}

TEST(PipelineStageDeathTest, HasAsManyChunksAsItsListGivesItsRank) {
    const comm::TwoRanks ranks;
    EXPECT_DEATH(MakeStage(ranks, 0, TwoChunks(), {0, 1, 1, 1}), "rank 0");
}

}  // namespace
}  // namespace infini_train::nn::parallel
