// A LLaMA whose rotary frequencies are scaled, against PyTorch's losses and gradient norms; on one rank and on one a
// layer.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "example/common/batch.h"
#include "example/common/load_weights.h"
#include "example/llama3/net.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/data/token_dataset.h"
#include "infini_train/include/nn/modules/loss.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "infini_train/include/optimizer/adamw.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

// docs/numerics.md: that of a first loss, which these few steps keep, and that of gradient norms.
constexpr float kLossTolerance = 1e-5f;
constexpr float kNormTolerance = 1e-4f;

void TrainOnRank(const std::string& folder, const nlohmann::json& run, const comm::Mesh& mesh) {
    const checkpoint::LlmcLlama3File file = checkpoint::OpenLlmcLlama3(folder + "/llama_tiny.bin");
    const nlohmann::json& scaling = run.at("config").at("rope_scaling");
    llama3::Llama3Config config = llama3::ConfigOf(file.header, 1.0f);
    config.rope_scaling_factor = scaling.at("factor");
    config.rope_original_positions = scaling.at("original_max_position_embeddings");
    const nn::parallel::StageLayout layout = nn::parallel::EvenLayout(config.num_layers, mesh.shape.pipeline);
    const auto chunk = std::make_shared<llama3::Llama3>(config, layout[static_cast<size_t>(mesh.position.pipeline)],
                                                        std::make_shared<nn::DropoutPosition>(), mesh.device);
    LoadWeights(file.weights, *chunk);
    nn::parallel::PipelineParallel pipeline({chunk}, mesh, {});
    const nlohmann::json& adamw = run.at("optimizer");
    const auto optimizer = std::make_shared<optimizers::AdamW>(
        pipeline.Parameters(), optimizers::AdamW::Options{.lr = adamw.at("lr").get<float>(),
                                                          .beta1 = adamw.at("betas")[0].get<float>(),
                                                          .beta2 = adamw.at("betas")[1].get<float>(),
                                                          .eps = adamw.at("eps").get<float>(),
                                                          .weight_decay = adamw.at("weight_decay").get<float>()});
    const auto loss_fn =
        std::make_shared<nn::CrossEntropyLoss>(nn::CrossEntropyLoss::Options{.vocab_size = config.vocab_size});
    const auto num_rows = run.at("B").get<int64_t>();
    const data::TokenDataset dataset(folder + "/text_u32.bin", run.at("T").get<int64_t>());
    for (int64_t step = 0; step < run.at("steps").get<int64_t>(); ++step) {
        const Batch batch = ReadBatch(dataset, step * num_rows, num_rows, mesh.device);
        const float loss = pipeline.TrainStep(batch.inputs, batch.targets, optimizer, loss_fn, DataType::kFloat32);
        const auto i = static_cast<size_t>(step);
        EXPECT_NEAR(loss, run.at("loss")[i].get<float>(), kLossTolerance * loss);
        EXPECT_NEAR(pipeline.grad_norm(), run.at("grad_norm")[i].get<float>(), kNormTolerance * pipeline.grad_norm());
    }
}

TEST(RopeScaling, GivesTheLossesOfPyTorch) {
    const std::string folder = ReferenceFolders()[0];
    const nlohmann::json reference = nlohmann::json::parse(ReadTextFile(folder + "/reference.json"));
    const nlohmann::json& run = reference.at("runs").at("llama_tiny_rope_scaled_adamw");
    for (const int num_ranks : {1, 3}) {
        comm::RunRanks({.shape = {.pipeline = num_ranks}, .timeout_s = 60.0},
                       [&](const comm::Mesh& mesh) { TrainOnRank(folder, run, mesh); });
    }
}

}  // namespace
}  // namespace infini_train::test
