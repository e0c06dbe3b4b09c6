#include <memory>
#include <string>
#include <utility>

#include <benchmark/benchmark.h>

#include "example/gpt2/config.h"
#include "example/gpt2/net.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "test/bench/pipeline_steps.h"

// GPT-2 124M, 8 micro-batches of 1 x 64 tokens, on two cores: one rank of two threads, and two ranks of one. A step is
// timed from its start on rank 0 to its end; its micro-batches alone are compared with what the simulator makes of the
// mean time of each action of the same step. Run it on a quiet machine with two free cores.

namespace infini_train::nn::parallel {
namespace {

constexpr int kNumCores = 2;
constexpr int kNumMicrobatches = 8;
constexpr int64_t kSequenceLength = 64;
// Of GPT-2 124M the head costs as much as 5.5 layers.
constexpr LayerCosts kCosts = {.embedding = 0.0, .layer = 1.0, .head = 5.5};

void RunRank(const comm::Mesh& mesh, const std::shared_ptr<PipelineSchedule>& schedule, DataType dtype,
             StepTimes* times) {
    const gpt2::Gpt2Config config = gpt2::NamedConfig("d12");
    const int num_ranks = mesh.shape.pipeline;
    auto chunk = std::make_shared<gpt2::Gpt2>(
        config, BalancedLayout(config.num_layers, num_ranks, kCosts)[static_cast<size_t>(mesh.position.pipeline)],
        std::make_shared<DropoutPosition>(), mesh.device);
    chunk->Initialize(1);
    chunk->To(dtype);
    TimeSteps(mesh, {chunk}, dtype,
              {.num_microbatches = kNumMicrobatches,
               .sequence_length = kSequenceLength,
               .vocab_size = config.vocab_size,
               .schedule = schedule},
              times);
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
