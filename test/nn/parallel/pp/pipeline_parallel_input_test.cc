// What PipelineParallel takes and what it refuses: modules of a user, float inputs, losses of both kinds, large
// messages, and what cannot be.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/kernels/cast.h"
#include "infini_train/include/nn/modules/container.h"
#include "infini_train/include/nn/modules/embedding.h"
#include "infini_train/include/nn/modules/linear.h"
#include "infini_train/include/nn/modules/loss.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/optimizer/sgd.h"
#include "test/support/pipeline_case.h"
#include "test/support/random_tensor.h"
#include "test/support/reference_step.h"

namespace infini_train::nn::parallel {
namespace {

using infini_train::test::MakeTinyLoss;
using infini_train::test::PipelineCase;
using infini_train::test::TinyRows;

/// Does something on each rank, and waits for all.
void OnRanks(int num_ranks, const std::function<void(const comm::Mesh&)>& work) {
    comm::RunRanks({.shape = {.pipeline = num_ranks}, .timeout_s = 60.0}, work);
}

/// The text of the Error that ends the ranks; empty when none does.
std::string ErrorOnRanks(int num_ranks, const std::function<void(const comm::Mesh&)>& work) {
    try {
        OnRanks(num_ranks, work);
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

std::shared_ptr<optimizers::Optimizer> MakeSgd(const Module& module, float lr) {
    return std::make_shared<optimizers::Sgd>(module.Parameters(), optimizers::Sgd::Options{.lr = lr});
}

PipelineCase TwoRanks() {
    return {.model = {.num_layers = 2}, .num_microbatches = 4, .max_norm = 0.0f, .num_ranks = 2};
}

/// The sum over the targets, as a scalar.
class SumLoss : public Module {
 public:
    TensorList Forward(const TensorList& inputs) override { return {MakeTinyLoss()->Forward(inputs)[0]}; }
};

TEST(PipelineParallelInput, CountsEachMicrobatchAlikeWhereALossIsAScalar) {
    OnRanks(2, [](const comm::Mesh& mesh) {
        const PipelineCase run = TwoRanks();
        const auto pipeline = MakePipeline(run, mesh, std::make_shared<ScheduleGPipe>());
        const std::shared_ptr<optimizers::Optimizer> optimizer = MakeSgd(*pipeline, 0.0f);
        const TinyRows rows = RowsOfStep(run, 0, mesh.device);
        float num_valid = 0.0f;
        for (const int32_t target : rows.targets->ToVector<int32_t>()) {
            num_valid += target == -100 ? 0.0f : 1.0f;
        }
        const float mean = pipeline->TrainStep(rows.inputs, rows.targets, optimizer, MakeTinyLoss(), run.dtype);
        const float norm = pipeline->grad_norm();
        const float mean_of_sums =
            pipeline->TrainStep(rows.inputs, rows.targets, optimizer, std::make_shared<SumLoss>(), run.dtype);
        EXPECT_NEAR(mean_of_sums, mean * num_valid / 4.0f, 1e-5f * mean_of_sums);
        EXPECT_NEAR(pipeline->grad_norm(), norm * num_valid / 4.0f, 1e-5f * pipeline->grad_norm());
    });
}

// A stage without parameters, too.
TEST(PipelineParallelInput, ConvertsAFloatInputToTheDtypeOfTheChunks) {
    const auto make_linear = [](const Device& device, int64_t out_features) {
        const auto linear =
            std::make_shared<Linear>(Linear::Options{.in_features = 6, .out_features = out_features}, device);
        linear->Initialize(static_cast<uint64_t>(out_features));
        linear->To(DataType::kBFloat16);
        return linear;
    };
    const auto loss_fn = std::make_shared<CrossEntropyLoss>(CrossEntropyLoss::Options{});
    const auto make_rows = [](const Device& device) {
        return TinyRows{.inputs = infini_train::test::RandomTensor({4, 6}, DataType::kFloat32, device, 1),
                        .targets = Tensor::FromVector(std::vector<int32_t>{0, 4, -100, 2}, {4}, device)};
    };

    const Device device = MakeCpuDevice();
    const std::shared_ptr<Module> first = make_linear(device, 6);
    const std::shared_ptr<Module> second = make_linear(device, 5);
    const auto whole = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{first, second});
    const TinyRows rows = make_rows(device);
    const auto narrow = Tensor::Empty({4, 6}, DataType::kBFloat16, device);
    kernels::cast(DeviceType::kCPU, *rows.inputs, *narrow);
    const auto optimizer = MakeSgd(*whole, 0.5f);
    const infini_train::test::ReferenceResult reference = infini_train::test::ReferenceStep(
        {.net = whole, .position = std::make_shared<DropoutPosition>(), .loss_fn = loss_fn}, narrow, rows.targets, 2,
        0.0f, *optimizer);

    OnRanks(3, [&](const comm::Mesh& mesh) {
        const std::shared_ptr<Module> chunk =
            mesh.rank == 1 ? std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{})
                           : std::shared_ptr<Module>(make_linear(mesh.device, mesh.rank == 0 ? 6 : 5));
        PipelineParallel pipeline({chunk}, mesh, {.num_microbatches = 2});
        const TinyRows own = make_rows(mesh.device);
        const float loss =
            pipeline.TrainStep(own.inputs, own.targets, MakeSgd(pipeline, 0.5f), loss_fn, DataType::kBFloat16);
        EXPECT_EQ(loss, reference.loss);
        EXPECT_EQ(pipeline.grad_norm(), reference.grad_norm);
        const std::shared_ptr<Module> wanted = mesh.rank == 0 ? first : second;
        for (size_t i = 0; i < pipeline.Parameters().size(); ++i) {
            EXPECT_TRUE(infini_train::test::SameBits(*pipeline.Parameters()[i], *wanted->Parameters()[i]));
        }
    });
}

// bugs.csv O15: 64 MiB an activation, larger than any buffer that would hide a wrong order.
TEST(PipelineParallelInput, PassesLargeMessagesInBothDirections) {
    constexpr int64_t kDim = 4096;
    constexpr int64_t kMicrobatches = 3;
    const auto make_table = [](const Device& device) {
        const auto table = std::make_shared<Embedding>(
            Embedding::Options{.num_embeddings = 5, .num_used = 5, .dim = kDim, .init_stddev = 1.0f}, device);
        table->Initialize(1);
        return table;
    };
    const auto loss_fn = std::make_shared<CrossEntropyLoss>(CrossEntropyLoss::Options{});
    const auto make_rows = [](const Device& device) {
        std::vector<int32_t> ids(kMicrobatches * kDim);
        for (size_t i = 0; i < ids.size(); ++i) {
            ids[i] = static_cast<int32_t>(i * i % 5);
        }
        const auto tokens = Tensor::FromVector(ids, {kMicrobatches, kDim}, device);
        return TinyRows{.inputs = tokens, .targets = tokens};
    };

    const Device device = MakeCpuDevice();
    const std::shared_ptr<Embedding> whole = make_table(device);
    const TinyRows rows = make_rows(device);
    const auto optimizer = MakeSgd(*whole, 100.0f);
    const infini_train::test::ReferenceResult reference = infini_train::test::ReferenceStep(
        {.net = whole, .position = std::make_shared<DropoutPosition>(), .loss_fn = loss_fn}, rows.inputs, rows.targets,
        kMicrobatches, 0.0f, *optimizer);

    const auto schedule = std::make_shared<Schedule1F1B>();
    OnRanks(2, [&](const comm::Mesh& mesh) {
        const std::shared_ptr<Module> chunk = mesh.rank == 1
                                                  ? std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{})
                                                  : std::shared_ptr<Module>(make_table(mesh.device));
        PipelineParallel pipeline({chunk}, mesh, {.num_microbatches = kMicrobatches, .schedule = schedule});
        const TinyRows own = make_rows(mesh.device);
        const float loss =
            pipeline.TrainStep(own.inputs, own.targets, MakeSgd(pipeline, 100.0f), loss_fn, DataType::kFloat32);
        EXPECT_EQ(loss, reference.loss);
        EXPECT_EQ(pipeline.grad_norm(), reference.grad_norm);
        if (mesh.rank == 0) {
            EXPECT_TRUE(infini_train::test::SameBits(*pipeline.Parameters()[0], *whole->Parameters()[0]));
        }
    });
}

TEST(PipelineParallelInput, LeavesParametersThatTheOptimizerHasNotOutOfTheNorm) {
    const PipelineCase run = TwoRanks();
    OnRanks(2, [&](const comm::Mesh& mesh) {
        const auto pipeline = MakePipeline(run, mesh, std::make_shared<ScheduleGPipe>());
        const TinyRows rows = RowsOfStep(run, 0, mesh.device);
        // Only the last stage's final norm learns.
        TensorList chosen;
        for (const NamedParameter& parameter : pipeline->NamedParameters()) {
            if (parameter.name == "ln_f.weight" || parameter.name == "ln_f.bias") {
                chosen.push_back(parameter.tensor);
            }
        }
        EXPECT_EQ(chosen.size(), mesh.rank == 1 ? 2u : 0u);
        const auto optimizer = std::make_shared<optimizers::Sgd>(chosen, optimizers::Sgd::Options{});
        pipeline->TrainStep(rows.inputs, rows.targets, optimizer, MakeTinyLoss(), run.dtype);
        const float norm = pipeline->grad_norm();
        pipeline->TrainStep(rows.inputs, rows.targets, MakeSgd(*pipeline, 0.0f), MakeTinyLoss(), run.dtype);
        EXPECT_GT(norm, 0.0f);
        EXPECT_LT(norm, 0.9f * pipeline->grad_norm());
    });
}

TEST(PipelineParallelInput, MakesWholeMicrobatchesOrNone) {
    const std::string error = ErrorOnRanks(2, [](const comm::Mesh& mesh) {
        const auto pipeline = MakePipeline(TwoRanks(), mesh, std::make_shared<ScheduleGPipe>());
        const TinyRows rows = infini_train::test::MakeRows(1, 7, 8, mesh.device);
        pipeline->TrainStep(rows.inputs, rows.targets, MakeSgd(*pipeline, 0.1f), MakeTinyLoss(), DataType::kFloat32);
    });
    EXPECT_NE(error.find("7 rows"), std::string::npos) << error;
    EXPECT_NE(error.find("a multiple of 4"), std::string::npos) << error;
}

// bugs.csv O94
TEST(PipelineParallelInput, OfAnotherDtypeThanTheChunksIsRefused) {
    const std::string error = ErrorOnRanks(2, [](const comm::Mesh& mesh) {
        const PipelineCase run = TwoRanks();
        const auto pipeline = MakePipeline(run, mesh, std::make_shared<ScheduleGPipe>());
        const TinyRows rows = RowsOfStep(run, 0, mesh.device);
        pipeline->TrainStep(rows.inputs, rows.targets, MakeSgd(*pipeline, 0.1f), MakeTinyLoss(), DataType::kBFloat16);
    });
    EXPECT_NE(error.find("got float32, wanted bfloat16"), std::string::npos) << error;
}

// bugs.csv O13, O14: ranks that do not agree on a micro-batch.
TEST(PipelineParallelInput, OfAnotherShapeOnOneRankIsRefused) {
    const std::string error = ErrorOnRanks(2, [](const comm::Mesh& mesh) {
        const auto pipeline = MakePipeline(TwoRanks(), mesh, std::make_shared<ScheduleGPipe>());
        const TinyRows rows = infini_train::test::MakeRows(1, 4, mesh.rank == 0 ? 8 : 9, mesh.device);
        pipeline->TrainStep(rows.inputs, rows.targets, MakeSgd(*pipeline, 0.1f), MakeTinyLoss(), DataType::kFloat32);
    });
    EXPECT_NE(error.find("[1, 8] int32"), std::string::npos) << error;
    EXPECT_NE(error.find("[1, 9] int32"), std::string::npos) << error;
}

// bugs.csv O03
TEST(PipelineParallelInput, OfTwoChunksForAScheduleOfOneIsRefused) {
    const std::string error = ErrorOnRanks(2, [](const comm::Mesh& mesh) {
        infini_train::test::MakePipeline({.model = {.num_layers = 4}, .num_ranks = 2, .num_chunks = 2}, mesh,
                                         std::make_shared<Schedule1F1B>());
    });
    EXPECT_NE(error.find("one chunk a rank"), std::string::npos) << error;
}

/// Fails on its second micro-batch.
class FailingLoss : public Module {
 public:
    TensorList Forward(const TensorList& inputs) override {
        if (++num_calls_ == 3) {  // the first one infers shapes
            throw Error({.where = "loss", .what = "is not for this"});
        }
        return MakeTinyLoss()->Forward(inputs);
    }

 private:
    int num_calls_ = 0;
};

TEST(PipelineParallelInput, ThatFailsOnOneRankEndsAll) {
    const std::string error = ErrorOnRanks(3, [](const comm::Mesh& mesh) {
        PipelineCase run = TwoRanks();
        run.num_ranks = 3;
        run.model.num_layers = 3;
        const auto pipeline = MakePipeline(run, mesh, std::make_shared<Schedule1F1B>());
        const TinyRows rows = RowsOfStep(run, 0, mesh.device);
        pipeline->TrainStep(rows.inputs, rows.targets, MakeSgd(*pipeline, 0.1f), std::make_shared<FailingLoss>(),
                            run.dtype);
    });
    EXPECT_NE(error.find("[rank 2] loss: is not for this"), std::string::npos) << error;
}

TEST(PipelineParallelInput, IsTimedOnEveryRank) {
    OnRanks(2, [](const comm::Mesh& mesh) {
        const PipelineCase run = TwoRanks();
        const auto pipeline = MakePipeline(run, mesh, std::make_shared<Schedule1F1B>());
        const TinyRows rows = RowsOfStep(run, 0, mesh.device);
        pipeline->TrainStep(rows.inputs, rows.targets, MakeSgd(*pipeline, 0.1f), MakeTinyLoss(), run.dtype);
        const Timeline timeline = pipeline->GatherTimeline();
        ASSERT_EQ(timeline.size(), 2u);
        double first_ms = 1e9;
        for (int rank = 0; rank < 2; ++rank) {
            const std::vector<TimelineEvent>& events = timeline[static_cast<size_t>(rank)];
            ActionList actions;
            double end_ms = 0.0;
            for (const TimelineEvent& event : events) {
                actions.push_back(event.action);
                EXPECT_LE(end_ms, event.wait_begin_ms);
                EXPECT_LE(event.wait_begin_ms, event.start_ms);
                EXPECT_LE(event.start_ms, event.end_ms);
                end_ms = event.end_ms;
            }
            EXPECT_EQ(actions, Schedule1F1B().Plan(pipeline->stage().ShapeFor(run.num_microbatches), rank));
            first_ms = std::min(first_ms, events[0].wait_begin_ms);
        }
        EXPECT_EQ(first_ms, 0.0);
        // The last stage computes only once the first one has sent, at the end of its action: the receiver may go on
        // before the sender has looked at the clock.
        EXPECT_GE(timeline[1][0].start_ms, timeline[0][0].start_ms);
    });
}

}  // namespace
}  // namespace infini_train::nn::parallel
