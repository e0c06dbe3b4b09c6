#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"

#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/nn/state_dict.h"
#include "infini_train/include/optimizer/sgd.h"
#include "test/support/pipeline_case.h"

namespace infini_train::nn::parallel {
namespace {

using infini_train::test::PipelineCase;
using infini_train::test::RankRun;
using infini_train::test::RunNumbers;
using infini_train::test::TinyRows;

constexpr int64_t kLength = 31;

/// Makes rows on a rank's device.
using RowMaker = std::function<TinyRows(const Device& device)>;

/// Rows of 31 tokens; the first has num_valid_first targets, the others all 31.
RowMaker Rows(int64_t num_rows, int num_valid_first) {
    return [=](const Device& device) {
        std::vector<int32_t> inputs;
        std::vector<int32_t> targets;
        for (int64_t i = 0; i < num_rows * kLength; ++i) {
            inputs.push_back(static_cast<int32_t>((i * i + 3) % 11));
            targets.push_back(i < kLength - num_valid_first ? -100
                                                            : static_cast<int32_t>(((i + 1) * (i + 1) + 3) % 11));
        }
        return TinyRows{.inputs = Tensor::FromVector(inputs, {num_rows, kLength}, device),
                        .targets = Tensor::FromVector(targets, {num_rows, kLength}, device)};
    };
}

RowMaker Part(const RowMaker& rows, int64_t begin, int64_t end) {
    return [=](const Device& device) { return SliceRows(rows(device), begin, end); };
}

using Values = std::map<std::string, std::vector<float>>;

/// What came of one step.
struct Trained {
    float loss = 0.0f;
    float grad_norm = 0.0f;
    Values before = {};
    Values after = {};
};

/// Does something on each rank, and waits for all.
void OnRanks(int num_ranks, const std::function<void(const comm::Mesh&)>& work) {
    comm::RunRanks({.shape = {.pipeline = num_ranks}, .timeout_s = 60.0}, work);
}

void AddValues(const Module& module, Values* values) {
    for (const auto& [name, tensor] : StateDict(module)) {
        (*values)[name] = tensor->ToVector<float>();
    }
}

/// One step of plain gradient descent with a rate of 1 on a GPT-2 of two layers.
Trained TrainOnce(const RowMaker& rows, int num_microbatches, int num_ranks, float max_norm = 0.0f) {
    const PipelineCase run = {
        .model = {.num_layers = 2}, .num_microbatches = num_microbatches, .max_norm = max_norm, .num_ranks = num_ranks};
    const auto schedule = std::make_shared<Schedule1F1B>();
    std::vector<Trained> ranks(static_cast<size_t>(num_ranks));
    OnRanks(num_ranks, [&](const comm::Mesh& mesh) {
        Trained& trained = ranks[static_cast<size_t>(mesh.rank)];
        const auto pipeline = MakePipeline(run, mesh, schedule);
        AddValues(*pipeline, &trained.before);
        const auto optimizer =
            std::make_shared<optimizers::Sgd>(pipeline->Parameters(), optimizers::Sgd::Options{.lr = 1.0f});
        const TinyRows own = rows(mesh.device);
        trained.loss = pipeline->TrainStep(own.inputs, own.targets, optimizer, infini_train::test::MakeTinyLoss(),
                                           DataType::kFloat32);
        trained.grad_norm = pipeline->grad_norm();
        AddValues(*pipeline, &trained.after);
    });
    Trained all = ranks[0];
    for (const Trained& rank : ranks) {
        EXPECT_EQ(rank.loss, all.loss);
        EXPECT_EQ(rank.grad_norm, all.grad_norm);
        all.before.insert(rank.before.begin(), rank.before.end());
        all.after.insert(rank.after.begin(), rank.after.end());
    }
    return all;
}

void ExpectNear(const Trained& a, const Trained& b) {
    EXPECT_NEAR(a.loss, b.loss, 1e-6f * a.loss);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5f * a.grad_norm);
    ASSERT_EQ(a.after.size(), b.after.size());
    for (const auto& [name, values] : a.after) {
        for (size_t i = 0; i < values.size(); ++i) {
            ASSERT_NEAR(values[i], b.after.at(name)[i], 1e-6f) << name;
        }
    }
}

// bugs.csv O28: a mean of means would weigh the one target of the first row as much as the 31 of the second.
TEST(PipelineParallel, WeighsEveryTargetAlikeHoweverTheyAreSpreadOverMicrobatches) {
    const Trained whole = TrainOnce(Rows(2, 1), 1, 1);
    for (const int num_ranks : {1, 2}) {
        ExpectNear(TrainOnce(Rows(2, 1), 2, num_ranks), whole);
    }
}

// bugs.csv O19, O20, O21
TEST(PipelineParallel, HasTheSameNormForEveryCutOfABatch) {
    const Trained whole = TrainOnce(Rows(8, 31), 1, 1);
    for (const int num_ranks : {1, 2}) {
        for (const int num_microbatches : {1, 2, 4, 8}) {
            ExpectNear(TrainOnce(Rows(8, 31), num_microbatches, num_ranks), whole);
        }
    }
}

// bugs.csv O29
TEST(PipelineParallel, AddsNothingForAMicrobatchWithoutTargets) {
    for (const int num_ranks : {1, 2}) {
        ExpectNear(TrainOnce(Rows(2, 0), 2, num_ranks), TrainOnce(Part(Rows(2, 0), 1, 2), 1, num_ranks));
        const Trained nothing = TrainOnce(Part(Rows(2, 0), 0, 1), 1, num_ranks);
        EXPECT_EQ(nothing.loss, 0.0f);
        EXPECT_EQ(nothing.grad_norm, 0.0f);
        EXPECT_EQ(nothing.after, nothing.before);
    }
}

// bugs.csv O22: with an own norm each stage would take a step of that length. The shared head counts once.
TEST(PipelineParallel, ClipsByTheGlobalNorm) {
    for (const int num_ranks : {1, 2}) {
        const Trained trained = TrainOnce(Rows(2, 31), 2, num_ranks, 0.1f);
        EXPECT_GT(trained.grad_norm, 0.2f);
        double squares = 0.0;
        for (const auto& [name, before] : trained.before) {
            for (size_t i = 0; i < before.size(); ++i) {
                squares += std::pow(double{before[i]} - double{trained.after.at(name)[i]}, 2);
            }
        }
        EXPECT_NEAR(std::sqrt(squares), 0.1, 1e-4);
    }
}

// bugs.csv O20, O22, O24, O25: on every rank, in every step.
TEST(PipelineParallel, TellsEveryRankTheLossAndTheNormOfOneRank) {
    PipelineCase run = {.model = {.num_layers = 4}, .num_microbatches = 3, .max_norm = 0.1f};
    const RunNumbers reference = RunReference(run);
    for (const int num_ranks : {1, 2, 4}) {
        run.num_ranks = num_ranks;
        for (const RankRun& rank : RunPipeline(run)) {
            EXPECT_EQ(rank.numbers.losses, reference.losses) << num_ranks;
            EXPECT_EQ(rank.numbers.grad_norms, reference.grad_norms) << num_ranks;
        }
    }
}

TEST(PipelineParallel, GivesTheSameBitsWithAnyNumberOfThreads) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        // Large enough for every kernel to divide its work.
        PipelineCase run = {.model = {.num_layers = 2, .num_channels = 128},
                            .dtype = dtype,
                            .num_rows = 16,
                            .lengths = {kLength},
                            .num_steps = 2};
        const RunNumbers reference = RunReference(run);
        for (const int num_ranks : {1, 2}) {
            for (const int num_threads : {1, 2, 3}) {
                run.num_ranks = num_ranks;
                run.threads_per_rank = num_threads;
                EXPECT_EQ(Difference(run, reference, RunPipeline(run)), "") << ToString(run);
            }
        }
    }
}

// bugs.csv O05, O42: no rank is left out of a pass, and the passes between steps change nothing.
TEST(PipelineParallel, EvaluatesAndRunsTheModelOnAllRanksBetweenSteps) {
    PipelineCase run = {.model = {.num_layers = 7, .dropout = 0.25f}, .num_microbatches = 2};
    const Device device = MakeCpuDevice();
    const auto position = std::make_shared<DropoutPosition>();
    position->training = false;
    const auto whole = MakeWhole(run.model, run.dtype, position, device);
    const std::vector<float> logits =
        whole->Forward({infini_train::test::MakeRows(70, 3, 8, device).inputs})[0]->ToVector<float>();
    const RunNumbers reference = RunReference(run);
    for (const int num_ranks : {2, 3}) {
        run.num_ranks = num_ranks;
        const auto schedule = std::make_shared<ScheduleGPipe>();
        OnRanks(num_ranks, [&](const comm::Mesh& mesh) {
            const auto pipeline = MakePipeline(run, mesh, schedule);
            const TinyRows other = infini_train::test::MakeRows(70, 3, 8, mesh.device);
            const TensorList output = pipeline->Forward({other.inputs});
            ASSERT_EQ(output.size(), mesh.rank + 1 == num_ranks ? 1u : 0u);
            if (!output.empty()) {
                EXPECT_EQ(output[0]->ToVector<float>(), logits);
            }
            const auto optimizer = infini_train::test::MakeAdamW(pipeline->Parameters());
            const auto loss_fn = infini_train::test::MakeTinyLoss();
            for (int step = 0; step < run.num_steps; ++step) {
                const TinyRows rows = RowsOfStep(run, step, mesh.device);
                const float loss = pipeline->TrainStep(rows.inputs, rows.targets, optimizer, loss_fn, run.dtype);
                EXPECT_EQ(std::bit_cast<uint32_t>(loss), reference.losses[static_cast<size_t>(step)]) << step;
                pipeline->Forward({other.inputs});
                EXPECT_GT(pipeline->EvalStep(other.inputs, other.targets, loss_fn, run.dtype, 3), 0.0f);
                EXPECT_EQ(pipeline->EvalStep(other.inputs, other.targets, loss_fn, run.dtype, 3),
                          pipeline->EvalStep(other.inputs, other.targets, loss_fn, run.dtype, 3));
            }
        });
    }
}

// bugs.csv O05, O92
TEST(PipelineParallel, HasEveryParameterOnceOnItsRank) {
    for (const auto kind :
         {infini_train::test::TinyModelKind::kGpt2, infini_train::test::TinyModelKind::kUntiedLlama}) {
        const PipelineCase whole = {.model = {.kind = kind}};
        const auto net = MakeWhole(whole.model, whole.dtype, std::make_shared<DropoutPosition>(), MakeCpuDevice());
        int64_t num_elements = 0;
        for (const std::shared_ptr<Tensor>& parameter : net->Parameters()) {
            num_elements += parameter->num_elements();
        }
        for (const int num_ranks : {1, 2, 3, 7}) {
            PipelineCase run = whole;
            run.num_ranks = num_ranks;
            const auto schedule = std::make_shared<ScheduleGPipe>();
            OnRanks(num_ranks, [&](const comm::Mesh& mesh) {
                const auto pipeline = MakePipeline(run, mesh, schedule);
                const TensorList parameters = pipeline->Parameters();
                EXPECT_EQ((std::set<std::shared_ptr<Tensor>>(parameters.begin(), parameters.end())).size(),
                          parameters.size());
                // A copy of a tied embedding is not counted again.
                EXPECT_EQ(pipeline->grad_reduction().num_elements(), num_elements);
                EXPECT_EQ(pipeline->grad_reduction().num_parameters(), static_cast<int64_t>(net->Parameters().size()));
            });
        }
    }
}

}  // namespace
}  // namespace infini_train::nn::parallel
