#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <gflags/gflags.h>

#include "example/common/auto_layout.h"
#include "example/llama3/config.h"
#include "example/llama3/net.h"
#include "example/llama3/spec.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "test/bench/pipeline_steps.h"

// LLaMA 1B shape in bfloat16 with float32 masters, a rank thread a GPU, M = 4 P micro-batches: one rank, and every
// schedule over NCCL and over the copy transport, with the even layout and with the one from measured times. The
// makespan of the micro-batches is compared with what the simulator makes of the mean time of each action of the same
// step and of the hop, which is measured before. With more ranks than GPUs only the copy transport runs, and the times
// of ranks that share a GPU say nothing of several.

DEFINE_int32(stages, 0, "a rank each; 0: as many as there are GPUs");
DEFINE_int32(rows, 4, "rows of a micro-batch");
DEFINE_int32(timed_steps, 10, "steps that are timed");

namespace infini_train::nn::parallel {
namespace {

constexpr const char* kModel = "1b";
constexpr int64_t kSequenceLength = 2048;
constexpr int kMicrobatchesPerRank = 4;
constexpr int kNumHops = 50;
constexpr DataType kDtype = DataType::kBFloat16;

struct Case {
    std::string schedule = "1f1b";
    int num_ranks = 1;
    comm::Transport transport = comm::Transport::kAuto;
    bool has_even_layout = true;
    int num_chunks() const { return schedule == "interleaved" || schedule == "looped_bfs" ? 2 : 1; }
    int num_microbatches() const { return kMicrobatchesPerRank * FLAGS_stages; }
};

/// A message there and back between the first two ranks, again and again, halved.
double HopMs(const comm::Mesh& mesh, const Shape& shape) {
    if (mesh.world->size() < 2) {
        return 0.0;
    }
    const std::vector<comm::Link> links = {{.from = 0, .to = 1, .direction = comm::Direction::kForward},
                                           {.from = 1, .to = 0, .direction = comm::Direction::kBackward}};
    const comm::LinkEnds ends = mesh.world->Split(0)->OpenLinks(links);
    if (mesh.rank > 1) {
        mesh.world->Barrier();
        return 0.0;
    }
    const auto& sender = ends.senders.begin()->second;
    const auto& receiver = ends.receivers.begin()->second;
    const comm::MessageTag there = {.direction = comm::Direction::kForward, .stage = 1};
    const comm::MessageTag back = {.direction = comm::Direction::kBackward};
    auto tensor = Tensor::Zeros(shape, kDtype, mesh.device);
    std::chrono::steady_clock::time_point begin;
    for (int hop = -kNumHops; hop < kNumHops; ++hop) {  // the first half is warm-up
        if (hop == 0) {
            StreamOf(mesh.device)->Synchronize();
            begin = std::chrono::steady_clock::now();
        }
        const comm::MessageSpec expected = {.tag = mesh.rank == 0 ? back : there, .shape = shape, .dtype = kDtype};
        const auto pending = receiver->Post(expected);
        if (mesh.rank == 0) {
            sender->Send(std::move(tensor), there);
            tensor = pending->Wait();
        } else {
            sender->Send(pending->Wait(), back);
        }
    }
    StreamOf(mesh.device)->Synchronize();
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    mesh.world->Barrier();
    return elapsed.count() / (2 * kNumHops);
}

StageLayout LayoutOf(const Case& bench_case, const llama3::Llama3Config& config) {
    const int num_stages = bench_case.num_ranks * bench_case.num_chunks();
    if (bench_case.has_even_layout || num_stages == 1) {
        return EvenLayout(config.num_layers, num_stages);
    }
    ProgramOptions options;
    options.model = kModel;
    options.device = DeviceType::kCUDA;
    options.dtype = kDtype;
    options.batch_size = FLAGS_rows;
    options.sequence_length = kSequenceLength;
    return ChooseLayout(options, llama3::MakeModel(options), num_stages, bench_case.num_ranks).layout;
}

void Run(benchmark::State& state, const Case& bench_case) {
    const std::shared_ptr<PipelineSchedule> schedule = MakeSchedule(bench_case.schedule);
    const llama3::Llama3Config config = llama3::NamedConfig(kModel);
    const StageLayout layout = LayoutOf(bench_case, config);
    for ([[maybe_unused]] auto _ : state) {
        StepTimes times;
        double small_hop_ms = 0.0;
        double hop_ms = 0.0;
        comm::RunRanks({.shape = {.pipeline = bench_case.num_ranks},
                        .device = DeviceType::kCUDA,
                        .transport = bench_case.transport,
                        .timeout_s = 120.0},
                       [&](const comm::Mesh& mesh) {
                           const double small_ms = HopMs(mesh, {64});
                           const double ms = HopMs(mesh, {FLAGS_rows, kSequenceLength, config.num_channels});
                           std::vector<std::shared_ptr<Module>> chunks;
                           for (int c = 0; c < bench_case.num_chunks(); ++c) {
                               const auto stage = static_cast<size_t>(c * bench_case.num_ranks + mesh.rank);
                               chunks.push_back(std::make_shared<llama3::Llama3>(
                                   config, layout[stage], std::make_shared<DropoutPosition>(), mesh.device));
                               chunks.back()->Initialize(1);
                               chunks.back()->To(kDtype);
                           }
                           if (mesh.rank == 0) {
                               small_hop_ms = small_ms;
                               hop_ms = ms;
                           }
                           TimeSteps(mesh, chunks, kDtype,
                                     {.num_microbatches = bench_case.num_microbatches(),
                                      .num_rows = FLAGS_rows,
                                      .sequence_length = kSequenceLength,
                                      .vocab_size = config.vocab_size,
                                      .max_grad_norm = 1.0f,
                                      .num_warm_up = 3,
                                      .num_steps = FLAGS_timed_steps,
                                      .hop_ms = ms,
                                      .schedule = schedule},
                                     &times);
                       });
        const double num_bytes = 2.0 * FLAGS_rows * static_cast<double>(kSequenceLength * config.num_channels);
        const double num_tokens = static_cast<double>(bench_case.num_microbatches() * FLAGS_rows * kSequenceLength);
        state.SetIterationTime(Median(times.step_ms) * 1e-3);
        state.counters["tokens/s"] = num_tokens / Median(times.step_ms) * 1e3;
        state.counters["makespan_ms"] = Median(times.makespan_ms);
        state.counters["measured/simulated"] = Median(times.ratio);
        if (bench_case.num_ranks > 1) {
            state.counters["hop_us_128B"] = small_hop_ms * 1e3;
            state.counters["hop_us"] = hop_ms * 1e3;
            state.counters["hop_GB/s"] = num_bytes / hop_ms * 1e-6;
        }
    }
    state.SetLabel("layers " + ToString(layout));
}

void Register() {
    std::vector<Case> cases = {{.num_ranks = 1}};
    for (const comm::Transport transport : {comm::Transport::kNccl, comm::Transport::kCopy}) {
        if (transport == comm::Transport::kNccl && FLAGS_stages > NumCudaDevices()) {
            continue;
        }
        for (const bool is_even : {true, false}) {
            for (const char* schedule : {"gpipe", "1f1b", "1f1b_eager", "interleaved", "looped_bfs"}) {
                cases.push_back({.schedule = schedule,
                                 .num_ranks = FLAGS_stages,
                                 .transport = transport,
                                 .has_even_layout = is_even});
            }
        }
    }
    for (const Case& c : cases) {
        const std::string how = c.num_ranks == 1 ? ""
                                                 : StrCat("/", c.transport == comm::Transport::kNccl ? "nccl" : "copy",
                                                          c.has_even_layout ? "/even" : "/auto");
        benchmark::RegisterBenchmark(StrCat("llama3_1b/", c.schedule, "/P:", c.num_ranks, how).c_str(), Run, c)
            ->UseManualTime()
            ->Iterations(1)
            ->Unit(benchmark::kMillisecond);
    }
}

}  // namespace
}  // namespace infini_train::nn::parallel

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    gflags::ParseCommandLineFlags(&argc, &argv, true);
    if (FLAGS_stages == 0) {
        FLAGS_stages = infini_train::NumCudaDevices();
    }
    infini_train::nn::parallel::Register();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
