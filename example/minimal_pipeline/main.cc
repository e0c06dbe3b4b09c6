// A model of your own on two ranks, threads that hold half of the layers each; or on the processes that a launcher
// starts. It learns which arm of a double spiral a point is on. To build it, with infini_train installed in PREFIX,
// copy this folder and run in the copy
//     cmake -S . -B build -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build && build/minimal_pipeline
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "infini_train/include/autograd/add.h"
#include "infini_train/include/autograd/gelu.h"
#include "infini_train/include/comm/process_place.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/core/random.h"
#include "infini_train/include/nn/modules/container.h"
#include "infini_train/include/nn/modules/linear.h"
#include "infini_train/include/nn/modules/loss.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "infini_train/include/optimizer/adamw.h"

using namespace infini_train;

constexpr int kNumLayers = 6, kWidth = 32, kNumPoints = 256, kNumMicrobatches = 4, kNumSteps = 200;

std::shared_ptr<nn::Module> MakeLinear(int in, int out, const Device& device) {
    const nn::Linear::Options options = {.in_features = in, .out_features = out, .init_stddev = 0.2f};
    return std::make_shared<nn::Linear>(options, device);
}

/// y = x + down(gelu(up(x)))
struct Block : nn::Module {
    explicit Block(const Device& device) {
        RegisterModule("up", up = MakeLinear(kWidth, 4 * kWidth, device));
        RegisterModule("down", down = MakeLinear(4 * kWidth, kWidth, device));
    }
    TensorList Forward(const TensorList& x) override {
        return {autograd::Add(x[0], down->Forward({autograd::Gelu(up->Forward(x)[0])})[0])};
    }
    std::shared_ptr<nn::Module> up, down;
};

/// Each rank builds its own layers alone, and goes through all steps with the others.
void RunRank(const comm::Mesh& mesh) {
    const auto own = nn::parallel::EvenLayout(kNumLayers, mesh.shape.pipeline)[size_t(mesh.position.pipeline)];
    std::vector<std::shared_ptr<nn::Module>> layers;
    for (int i = own.begin; i < own.end; ++i) {
        const bool is_block = 0 < i && i < kNumLayers - 1;
        layers.push_back(is_block ? std::make_shared<Block>(mesh.device)
                                  : MakeLinear(i == 0 ? 2 : kWidth, i == 0 ? kWidth : 2, mesh.device));
    }
    const auto part = std::make_shared<nn::Sequential>(layers, own.begin);  // "3.up.weight": names as in the whole
    part->Initialize(/*seed=*/42);
    nn::parallel::PipelineParallel model({part}, mesh, {.num_microbatches = kNumMicrobatches});
    const auto adamw = std::make_shared<optimizers::AdamW>(model.Parameters(), optimizers::AdamW::Options{.lr = 1e-3f});
    const auto loss_fn = std::make_shared<nn::CrossEntropyLoss>(nn::CrossEntropyLoss::Options{});
    for (int step = 0; step <= kNumSteps; ++step) {
        std::vector<float> points;  // the same ones on every rank
        std::vector<int> arms;
        for (int i = 0; i < kNumPoints; ++i) {
            const float radius = 0.2f + 0.9f * Uniform({.stream = uint64_t(step)}, uint64_t(i));
            const float angle = 9.42f * radius + 3.14f * float(i % 2);  // three half turns; the arms are opposite
            points.insert(points.end(), {radius * std::cos(angle), radius * std::sin(angle)});
            arms.push_back(i % 2);
        }
        const auto input = Tensor::FromVector(points, {kNumPoints, 2}, mesh.device);
        const auto target = Tensor::FromVector(arms, {kNumPoints}, mesh.device);
        const float loss = model.TrainStep(input, target, adamw, loss_fn, DataType::kFloat32);
        if (mesh.rank == 0 && step % 20 == 0) {
            std::printf("step %3d  loss %.9g\n", step, loss);
        }
    }
}

int main(int argc, char** argv) try {
    const comm::ProcessPlace process = comm::ReadProcessPlace();
    const int num_stages = argc > 1 ? std::atoi(argv[1]) : std::max(2, process.num_processes);
    comm::RunRanks({.shape = {.pipeline = num_stages}, .process = process}, RunRank);
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
