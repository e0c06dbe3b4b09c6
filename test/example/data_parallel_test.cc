// Replicas of a pipeline that read rows of their own learn what one rank learns on all of the rows, but for the order
// of the sums over them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/nn/state_dict.h"
#include "infini_train/include/optimizer/sgd.h"
#include "test/support/pipeline_case.h"
#include "test/support/reference_step.h"

namespace infini_train::test {
namespace {

using nn::parallel::PipelineParallel;

// docs/numerics.md: of the order of a sum over replicas, float32.
constexpr float kTolerance = 1e-5f;

std::vector<float> Floats(const std::string& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

void ExpectNear(const std::vector<uint32_t>& got, const std::vector<uint32_t>& wanted, const std::string& what) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
        const float value = std::bit_cast<float>(wanted[i]);
        EXPECT_NEAR(std::bit_cast<float>(got[i]), value, kTolerance * value) << what << " of step " << i;
    }
}

void ExpectNear(const RunNumbers& got, const RunNumbers& wanted) {
    ExpectNear(got.losses, wanted.losses, "loss");
    ExpectNear(got.grad_norms, wanted.grad_norms, "norm");
    ExpectNear(got.eval_losses, wanted.eval_losses, "evaluation");
    const std::map<std::string, std::string> parameters(wanted.parameters.begin(), wanted.parameters.end());
    for (const auto& [name, bytes] : got.parameters) {
        const std::vector<float> values = Floats(bytes);
        const std::vector<float> wanted_values = Floats(parameters.at(name));
        for (size_t i = 0; i < values.size(); ++i) {
            ASSERT_NEAR(values[i], wanted_values[i], kTolerance) << name;
        }
    }
}

// bugs.csv O17, O27, O95: three micro-batches on each replica.
TEST(DataParallel, AgreesWithOneRankOnTheSameRows) {
    for (const TinyModelKind kind : {TinyModelKind::kGpt2, TinyModelKind::kTiedLlama, TinyModelKind::kUntiedLlama}) {
        for (const int num_replicas : {1, 2, 3}) {
            PipelineCase run = {.model = {.kind = kind, .num_layers = 4, .dropout = 0.25f},
                                .num_microbatches = 3,
                                .evaluates = true,
                                .num_replicas = num_replicas,
                                .schedule = "1f1b"};
            const RunNumbers reference = RunReference(run);
            for (const int num_ranks : {1, 2, 4}) {
                run.num_ranks = num_ranks;
                SCOPED_TRACE(ToString(run));
                const std::vector<RankRun> ranks = RunPipeline(run);
                for (size_t rank = 0; rank < ranks.size(); ++rank) {
                    ExpectNear(ranks[rank].numbers, reference);
                    // The order of ranks: data first, then pipeline.
                    const RunNumbers& first_replica = ranks[rank - rank % static_cast<size_t>(num_replicas)].numbers;
                    EXPECT_EQ(ranks[rank].numbers.parameters, first_replica.parameters);
                    EXPECT_EQ(ranks[rank].numbers.losses, ranks[0].numbers.losses);
                    EXPECT_EQ(ranks[rank].numbers.grad_norms, ranks[0].numbers.grad_norms);
                }
                if (num_replicas == 1) {
                    EXPECT_EQ(Difference(run, reference, ranks), "");
                }
            }
        }
    }
}

TEST(DataParallel, KeepsReplicasEqualInBfloat16) {
    const PipelineCase run = {.dtype = DataType::kBFloat16,
                              .num_microbatches = 3,
                              .num_ranks = 2,
                              .num_replicas = 2,
                              .num_chunks = 2,
                              .schedule = "interleaved"};
    const std::vector<RankRun> ranks = RunPipeline(run);
    EXPECT_EQ(ranks[0].numbers.parameters, ranks[1].numbers.parameters);
    EXPECT_EQ(ranks[2].numbers.parameters, ranks[3].numbers.parameters);
}

/// Two rows a replica in two micro-batches. The first replica has one word again and again and a single target, the
/// second random text and all of its targets, the third no target at all.
TinyRows UnequalRows(const Device& device) {
    const TinyRows random = MakeRows(3, 6, 8, device);
    std::vector<int32_t> inputs = random.inputs->ToVector<int32_t>();
    std::vector<int32_t> targets(inputs.size(), -100);
    std::fill_n(inputs.begin(), 16, 4);
    targets[10] = 7;
    for (size_t i = 16; i < 32; ++i) {
        targets[i] = inputs[i + 1];
    }
    return {.inputs = Tensor::FromVector(inputs, {6, 8}, device),
            .targets = Tensor::FromVector(targets, {6, 8}, device)};
}

// bugs.csv O27, O28, O98: a mean over the replicas of their means would be another loss, and another gradient.
TEST(DataParallel, WeighsEveryTargetAlikeHoweverUnequallyReplicasHaveThem) {
    const PipelineCase run = {.model = {.num_layers = 4}, .max_norm = 0.0f, .num_replicas = 3};
    const Device device = MakeCpuDevice();
    const auto position = std::make_shared<nn::DropoutPosition>();
    const ReferenceModel whole = {
        .net = MakeWhole(run.model, run.dtype, position, device), .position = position, .loss_fn = MakeTinyLoss()};
    const TinyRows rows = UnequalRows(device);
    optimizers::Sgd optimizer(whole.net->Parameters(), {.lr = 1.0f});
    const ReferenceResult reference = ReferenceStep(whole, rows.inputs, rows.targets, 6, run.max_norm, optimizer);
    const auto state = nn::StateDict(*whole.net);
    for (const int num_ranks : {1, 2, 4}) {
        PipelineCase layout = run;
        layout.num_ranks = num_ranks;
        comm::RunRanks({.shape = {.data = 3, .pipeline = num_ranks}, .timeout_s = 60.0}, [&](const comm::Mesh& mesh) {
            const auto pipeline = MakePipeline(layout, mesh, std::make_shared<nn::parallel::Schedule1F1B>());
            const TinyRows own =
                SliceRows(UnequalRows(mesh.device), 2 * mesh.position.data, 2 * mesh.position.data + 2);
            const float loss = pipeline->TrainStep(
                own.inputs, own.targets,
                std::make_shared<optimizers::Sgd>(pipeline->Parameters(), optimizers::Sgd::Options{.lr = 1.0f}),
                MakeTinyLoss(), run.dtype);
            EXPECT_NEAR(loss, reference.loss, kTolerance * reference.loss);
            EXPECT_NEAR(pipeline->grad_norm(), reference.grad_norm, kTolerance * reference.grad_norm);
            for (const auto& [name, tensor] : nn::StateDict(*pipeline)) {
                const std::vector<float> values = tensor->ToVector<float>();
                const std::vector<float> wanted = state.at(name)->ToVector<float>();
                for (size_t i = 0; i < values.size(); ++i) {
                    ASSERT_NEAR(values[i], wanted[i], kTolerance) << name;
                }
            }
        });
    }
}

/// Counts what goes through it.
class CountingGroup : public comm::ProcessGroup {
 public:
    explicit CountingGroup(std::shared_ptr<comm::ProcessGroup> group)
        : ProcessGroup(group->rank(), group->world_ranks()), group_(std::move(group)) {}

    void AllReduceSum(const TensorList& tensors) override {
        ++num_sums_;
        num_tensors_ += tensors.size();
        group_->AllReduceSum(tensors);
    }
    void AllGather(const Tensor& x, Tensor& gathered) override { group_->AllGather(x, gathered); }
    void Broadcast(Tensor& x, int root) override { group_->Broadcast(x, root); }
    void Barrier() override { group_->Barrier(); }
    std::vector<std::string> ExchangeText(const std::string& text) override { return group_->ExchangeText(text); }
    std::shared_ptr<comm::ProcessGroup> Split(int color) override { return group_->Split(color); }
    comm::LinkEnds OpenLinks(const std::vector<comm::Link>& links) override { return group_->OpenLinks(links); }
    void ThrowIfFailed() override { group_->ThrowIfFailed(); }

    int num_sums() const { return num_sums_; }
    size_t num_tensors() const { return num_tensors_; }

 private:
    std::shared_ptr<comm::ProcessGroup> group_;
    int num_sums_ = 0;
    size_t num_tensors_ = 0;
};

// bugs.csv O95
TEST(DataParallel, SumsGradientsOnceAStepHoweverManyMicrobatches) {
    for (const int num_microbatches : {1, 3}) {
        const PipelineCase run = {.model = {.num_layers = 4},
                                  .num_microbatches = num_microbatches,
                                  .num_steps = 2,
                                  .num_ranks = 2,
                                  .num_replicas = 2};
        comm::RunRanks({.shape = {.data = 2, .pipeline = 2}, .timeout_s = 60.0}, [&](const comm::Mesh& mesh) {
            comm::Mesh counted = mesh;
            const auto group = std::make_shared<CountingGroup>(mesh.data);
            counted.data = group;
            const RankRun rank = RunOnRank(run, counted, std::make_shared<nn::parallel::Schedule1F1B>());
            EXPECT_EQ(group->num_sums(), run.num_steps);
            EXPECT_EQ(group->num_tensors(), static_cast<size_t>(run.num_steps) * rank.numbers.parameters.size());
        });
    }
}

TEST(DataParallel, EvaluatesRowsThatOneReplicaAloneHas) {
    const PipelineCase run = {.model = {.num_layers = 4}, .num_ranks = 2, .num_replicas = 2};
    const Device device = MakeCpuDevice();
    const auto position = std::make_shared<nn::DropoutPosition>();
    const ReferenceModel whole = {
        .net = MakeWhole(run.model, run.dtype, position, device), .position = position, .loss_fn = MakeTinyLoss()};
    const TinyRows rows = MakeRows(9, 3, 8, device);
    const float reference = ReferenceEvalStep(whole, rows.inputs, rows.targets, 3);
    comm::RunRanks({.shape = {.data = 2, .pipeline = 2}, .timeout_s = 60.0}, [&](const comm::Mesh& mesh) {
        const auto pipeline = MakePipeline(run, mesh, std::make_shared<nn::parallel::ScheduleGPipe>());
        const TinyRows own = MakeRows(9, mesh.position.data == 0 ? 3 : 0, 8, mesh.device);
        EXPECT_EQ(pipeline->EvalStep(own.inputs, own.targets, MakeTinyLoss(), run.dtype, 3), reference);
    });
}

}  // namespace
}  // namespace infini_train::test
