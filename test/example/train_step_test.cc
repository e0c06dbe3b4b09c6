#include "example/common/train_step.h"

#include <omp.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "example/common/load_weights.h"
#include "example/gpt2/net.h"
#include "example/llama3/net.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"
#include "infini_train/include/optimizer/adamw.h"
#include "infini_train/include/optimizer/sgd.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

Model SmallModel(const Device& device, DataType dtype = DataType::kFloat32, int64_t num_channels = 16) {
    const gpt2::Gpt2Config config = {.block_size = 32,
                                     .vocab_size = 11,
                                     .padded_vocab_size = 16,
                                     .num_layers = 2,
                                     .num_heads = 2,
                                     .num_channels = num_channels};
    auto position = std::make_shared<nn::DropoutPosition>();
    auto net =
        std::make_shared<gpt2::Gpt2>(config, LayerRange{.begin = 0, .end = 2, .num_layers = 2}, position, device);
    net->Initialize(1);
    net->To(dtype);
    return {.net = net, .dropout_position = position, .block_size = 32, .vocab_size = 11};
}

/// Rows of 31 tokens; the first has num_valid targets, the others all 31.
StepBatch Batch(int64_t num_rows, int num_valid_first, const Device& device) {
    std::vector<int32_t> inputs;
    std::vector<int32_t> targets;
    for (int64_t i = 0; i < num_rows * 31; ++i) {
        inputs.push_back(static_cast<int32_t>((i * i + 3) % 11));
        targets.push_back(i < 31 - num_valid_first ? -100 : static_cast<int32_t>(((i + 1) * (i + 1) + 3) % 11));
    }
    return {.inputs = Tensor::FromVector(inputs, {num_rows, 31}, device),
            .targets = Tensor::FromVector(targets, {num_rows, 31}, device)};
}

std::vector<std::vector<float>> ValuesOf(const Model& model) {
    std::vector<std::vector<float>> values;
    for (const std::shared_ptr<Tensor>& parameter : model.net->Parameters()) {
        values.push_back((parameter->master() != nullptr ? *parameter->master() : *parameter).ToVector<float>());
    }
    return values;
}

struct Trained {
    StepResult result;
    std::vector<std::vector<float>> values;
};

Trained TrainOnce(const StepBatch& batch, int64_t batch_size, const Device& device) {
    const Model model = SmallModel(device);
    optimizers::Sgd optimizer(model.net->Parameters(), {.lr = 1.0f});
    const StepResult result = TrainStep(model, batch, batch_size, 0, 0.0f, optimizer);
    return {.result = result, .values = ValuesOf(model)};
}

void ExpectNear(const Trained& a, const Trained& b) {
    EXPECT_NEAR(a.result.loss, b.result.loss, 1e-6f * a.result.loss);
    EXPECT_NEAR(a.result.grad_norm, b.result.grad_norm, 1e-5f * a.result.grad_norm);
    for (size_t i = 0; i < a.values.size(); ++i) {
        for (size_t j = 0; j < a.values[i].size(); ++j) {
            ASSERT_NEAR(a.values[i][j], b.values[i][j], 1e-6f) << "parameter " << i;
        }
    }
}

// bugs.csv O28: a mean of means would weigh the one target of the first row as much as the 31 of the second.
TEST(TrainStep, WeighsEveryTargetAlikeHoweverTheyAreSpreadOverMicrobatches) {
    const Device device = MakeCpuDevice();
    const StepBatch batch = Batch(2, 1, device);
    ExpectNear(TrainOnce(batch, 1, device), TrainOnce(batch, 2, device));
}

// bugs.csv O19, O21
TEST(TrainStep, GivesTheSameNormForEveryCutOfABatch) {
    const Device device = MakeCpuDevice();
    const StepBatch batch = Batch(8, 31, device);
    const Trained whole = TrainOnce(batch, 8, device);
    for (const int64_t batch_size : {1, 2, 4}) {
        ExpectNear(TrainOnce(batch, batch_size, device), whole);
    }
}

// bugs.csv O29
TEST(TrainStep, AMicrobatchWithoutTargetsAddsNothing) {
    const Device device = MakeCpuDevice();
    const StepBatch batch = Batch(2, 0, device);
    const StepBatch second = {.inputs = batch.inputs->Slice(1, 2), .targets = batch.targets->Slice(1, 2)};
    ExpectNear(TrainOnce(batch, 1, device), TrainOnce(second, 1, device));
    const StepBatch first = {.inputs = batch.inputs->Slice(0, 1), .targets = batch.targets->Slice(0, 1)};
    const Trained nothing = TrainOnce(first, 1, device);
    EXPECT_EQ(nothing.result.loss, 0.0f);
    EXPECT_EQ(nothing.result.grad_norm, 0.0f);
    EXPECT_EQ(nothing.values, ValuesOf(SmallModel(device)));
}

TEST(TrainStep, ClipsByTheGlobalNorm) {
    const Device device = MakeCpuDevice();
    const StepBatch batch = Batch(2, 31, device);
    const Model model = SmallModel(device);
    const std::vector<std::vector<float>> before = ValuesOf(model);
    optimizers::Sgd optimizer(model.net->Parameters(), {.lr = 1.0f});
    const StepResult result = TrainStep(model, batch, 1, 0, 0.1f, optimizer);
    EXPECT_GT(result.grad_norm, 0.2f);
    double squares = 0.0;
    const std::vector<std::vector<float>> after = ValuesOf(model);
    for (size_t i = 0; i < before.size(); ++i) {
        for (size_t j = 0; j < before[i].size(); ++j) {
            squares += std::pow(static_cast<double>(before[i][j]) - static_cast<double>(after[i][j]), 2);
        }
    }
    EXPECT_NEAR(std::sqrt(squares), 0.1, 1e-4);
}

TEST(TrainStep, GivesTheSameBitsWithAnyNumberOfThreads) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        std::vector<std::vector<std::vector<float>>> results;
        const int before = omp_get_max_threads();
        for (const int threads : {1, 2, 3}) {
            omp_set_num_threads(threads);
            const Device device = MakeCpuDevice();
            // Large enough for every kernel to divide its work.
            const Model model = SmallModel(device, dtype, 128);
            optimizers::AdamW optimizer(model.net->Parameters(), {.lr = 0.01f, .weight_decay = 0.1f});
            for (int step = 0; step < 3; ++step) {
                TrainStep(model, Batch(32, 20, device), 16, step, 1.0f, optimizer);
            }
            results.push_back(ValuesOf(model));
        }
        omp_set_num_threads(before);
        EXPECT_EQ(results[0], results[1]);
        EXPECT_EQ(results[0], results[2]);
    }
}

TEST(TrainStep, AsksTheSystemForNoMemoryAfterTheFirstStep) {
    const Device device = MakeCpuDevice();
    const Model model = SmallModel(device);
    optimizers::AdamW optimizer(model.net->Parameters(), {.lr = 0.01f});
    const StepBatch batch = Batch(4, 31, device);
    TrainStep(model, batch, 2, 0, 0.0f, optimizer);
    const Allocator::Stats first = device.allocator->stats();
    for (int step = 1; step < 4; ++step) {
        TrainStep(model, batch, 2, step, 0.0f, optimizer);
    }
    const Allocator::Stats last = device.allocator->stats();
    EXPECT_EQ(first.num_system_requests, last.num_system_requests);
    EXPECT_EQ(first.live_bytes, last.live_bytes);
    EXPECT_EQ(first.peak_bytes, last.peak_bytes);
}

TEST(TrainStep, ScalesRotaryFrequenciesAsPyTorchDoes) {
    const std::string folder = ReferenceFolders()[0];
    const nlohmann::json run =
        nlohmann::json::parse(ReadTextFile(folder + "/reference.json")).at("runs").at("llama_tiny_rope_scaled_adamw");
    const nlohmann::json& scaling = run.at("config").at("rope_scaling");
    const checkpoint::LlmcLlama3File file = checkpoint::OpenLlmcLlama3(folder + "/llama_tiny.bin");
    llama3::Llama3Config config = llama3::ConfigOf(file.header, 1.0f);
    config.rope_scaling_factor = scaling.at("factor");
    config.rope_original_positions = scaling.at("original_max_position_embeddings");
    const Device device = MakeCpuDevice();
    auto position = std::make_shared<nn::DropoutPosition>();
    auto net =
        std::make_shared<llama3::Llama3>(config, LayerRange{.begin = 0, .end = 3, .num_layers = 3}, position, device);
    LoadWeights(file.weights, *net);
    const Model model = {
        .net = net, .dropout_position = position, .block_size = config.block_size, .vocab_size = config.vocab_size};
    const nlohmann::json& adamw = run.at("optimizer");
    optimizers::AdamW optimizer(net->Parameters(), {.lr = adamw.at("lr").get<float>(),
                                                    .beta1 = adamw.at("betas")[0].get<float>(),
                                                    .beta2 = adamw.at("betas")[1].get<float>(),
                                                    .eps = adamw.at("eps").get<float>(),
                                                    .weight_decay = adamw.at("weight_decay").get<float>()});
    const BatchShape shape = {
        .batch_size = run.at("B"), .sequence_length = run.at("T").get<int64_t>(), .num_microbatches = 1};
    const data::TokenDataset dataset(folder + "/text_u32.bin", shape.sequence_length);
    for (int64_t step = 0; step < run.at("steps").get<int64_t>(); ++step) {
        const StepResult result =
            TrainStep(model, ReadStep(dataset, shape, step, device), shape.batch_size, step, 0.0f, optimizer);
        const auto i = static_cast<size_t>(step);
        EXPECT_NEAR(result.loss, run.at("loss")[i].get<float>(), 1e-5f * result.loss);
        EXPECT_NEAR(result.grad_norm, run.at("grad_norm")[i].get<float>(), 1e-4f * result.grad_norm);
    }
}

}  // namespace
}  // namespace infini_train::test
