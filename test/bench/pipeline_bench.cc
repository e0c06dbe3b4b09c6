#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "example/gpt2/config.h"
#include "example/gpt2/net.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/nn/modules/loss.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/nn/parallel/pp/simulator.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "infini_train/include/optimizer/adamw.h"

// GPT-2 124M, 8 micro-batches of 1 x 64 tokens, on two cores: one rank of two threads, and two ranks of one. A step is
// timed from its start on rank 0 to its end; its micro-batches alone are compared with what the simulator makes of the
// mean time of each action of the same step. Run it on a quiet machine with two free cores.

namespace infini_train::nn::parallel {
namespace {

constexpr int kNumCores = 2;
constexpr int kNumMicrobatches = 8;
constexpr int64_t kSequenceLength = 64;
constexpr int kWarmUpSteps = 2;  // the first one takes memory from the system
constexpr int kNumSteps = 9;
// Of GPT-2 124M the head costs as much as 5.5 layers.
constexpr LayerCosts kCosts = {.embedding = 0.0, .layer = 1.0, .head = 5.5};

struct StepTimes {
    std::vector<double> step_ms;
    std::vector<double> makespan_ms;
    std::vector<double> ratio;  // measured / simulated makespan
};

double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// The measured makespan of a step, and its ratio to the simulated one.
void AddTimeline(const PipelineShape& shape, const PipelineSchedule& schedule, const Timeline& timeline,
                 StepTimes* times) {
    double end_ms = 0.0;
    for (const std::vector<TimelineEvent>& events : timeline) {
        end_ms = std::max(end_ms, events.back().end_ms);
    }
    const Simulation simulation = Simulate(shape, schedule.PlanAllRanks(shape), MeasuredCosts(shape, timeline));
    times->makespan_ms.push_back(end_ms);
    times->ratio.push_back(end_ms / simulation.makespan);
}

void RunRank(const comm::Mesh& mesh, const std::shared_ptr<PipelineSchedule>& schedule, DataType dtype,
             StepTimes* times) {
    const gpt2::Gpt2Config config = gpt2::NamedConfig("d12");
    const int num_ranks = mesh.shape.pipeline;
    auto chunk = std::make_shared<gpt2::Gpt2>(
        config, BalancedLayout(config.num_layers, num_ranks, kCosts)[static_cast<size_t>(mesh.position.pipeline)],
        std::make_shared<DropoutPosition>(), mesh.device);
    chunk->Initialize(1);
    chunk->To(dtype);
    PipelineParallel pipeline({chunk}, mesh, {.num_microbatches = kNumMicrobatches, .schedule = schedule});
    const auto optimizer = std::make_shared<optimizers::AdamW>(pipeline.Parameters(), optimizers::AdamW::Options{});
    const auto loss = std::make_shared<CrossEntropyLoss>(CrossEntropyLoss::Options{.vocab_size = config.vocab_size});
    std::vector<int32_t> ids(kNumMicrobatches * kSequenceLength);
    for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(config.vocab_size));
    }
    const auto tokens = Tensor::FromVector(ids, {kNumMicrobatches, kSequenceLength}, mesh.device);
    for (int step = 0; step < kWarmUpSteps + kNumSteps; ++step) {
        mesh.world->Barrier();
        const auto start = std::chrono::steady_clock::now();
        pipeline.TrainStep(tokens, tokens, optimizer, loss, dtype);
        mesh.world->Barrier();
        const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
        const Timeline timeline = pipeline.GatherTimeline();
        if (mesh.rank == 0 && step >= kWarmUpSteps) {
            times->step_ms.push_back(elapsed.count());
            AddTimeline(pipeline.stage().ShapeFor(kNumMicrobatches), *schedule, timeline, times);
        }
    }
}

void PipelineStep(benchmark::State& state, const std::string& schedule_name, int num_ranks, DataType dtype) {
    const std::shared_ptr<PipelineSchedule> schedule = MakeSchedule(schedule_name);
    for ([[maybe_unused]] auto _ : state) {
        StepTimes times;
        comm::RunRanks({.shape = {.pipeline = num_ranks}, .threads_per_rank = kNumCores / num_ranks},
                       [&](const comm::Mesh& mesh) { RunRank(mesh, schedule, dtype, &times); });
        state.SetIterationTime(Median(times.step_ms) * 1e-3);
        state.counters["makespan_ms"] = Median(times.makespan_ms);
        state.counters["measured/simulated"] = Median(times.ratio);
        state.counters["tokens/s"] = kNumMicrobatches * kSequenceLength / Median(times.step_ms) * 1e3;
    }
}

void Register() {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const auto& [schedule, num_ranks] :
             {std::pair{"1f1b", 1}, std::pair{"gpipe", 2}, std::pair{"1f1b", 2}, std::pair{"1f1b_eager", 2}}) {
            const std::string name =
                std::string("d12/") + std::string(Name(dtype)) + "/" + schedule + "/P:" + std::to_string(num_ranks);
            benchmark::RegisterBenchmark(name.c_str(), PipelineStep, schedule, num_ranks, dtype)
                ->UseManualTime()
                ->Iterations(1)
                ->Unit(benchmark::kMillisecond);
        }
    }
}

}  // namespace
}  // namespace infini_train::nn::parallel

int main(int argc, char** argv) {
    infini_train::nn::parallel::Register();
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
