// What carries tensors between two stages, and sums gradients over replicas: ranks that are threads of one process, and
// ranks that are processes over gloo on this machine. scripts/bench_hops.py puts PyTorch's gloo beside it. Run it on a
// quiet machine with two free cores.

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "glog/logging.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/src/comm/socket.h"

namespace infini_train::comm {
namespace {

constexpr int kWarmUp = 5;
constexpr int64_t kLargest = int64_t{64} << 20;  // bytes

int FreePort() {
    const Descriptor listener = Listen("127.0.0.1", 0);
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    CHECK_EQ(getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
}

void RunProcess(int index, int num_processes, int port, const std::function<void(const Mesh&)>& rank_main) {
    RunRanks({.shape = {.data = num_processes},
              .process = {.index = index,
                          .num_processes = num_processes,
                          .local_index = index,
                          .num_local = num_processes,
                          .master_address = "127.0.0.1",
                          .master_port = port,
                          .job_id = "hop_bench"},
              .timeout_s = 60.0,
              .threads_per_rank = 1},
             rank_main);
}

/// Of one round each; the median is what a process beside it disturbs least.
void ReportMedian(std::vector<double> seconds, benchmark::State& state) {
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
    state.counters["median_us"] = seconds[seconds.size() / 2] * 1e6;
}

/// Runs rank_main on as many ranks, which are threads or processes; rank 0 in this process.
void RunAll(int num_ranks, bool has_processes, const std::function<void(const Mesh&)>& rank_main) {
    if (!has_processes) {
        RunRanks({.shape = {.data = num_ranks}, .timeout_s = 60.0, .threads_per_rank = 1}, rank_main);
        return;
    }
    const int port = FreePort();
    std::vector<pid_t> children;
    for (int index = 1; index < num_ranks; ++index) {
        children.push_back(fork());
        if (children.back() == 0) {
            int exit_code = 0;
            try {
                RunProcess(index, num_ranks, port, rank_main);
            } catch (const std::exception& error) {
                LOG(ERROR) << error.what();
                exit_code = 1;
            }
            _exit(exit_code);
        }
    }
    RunProcess(0, num_ranks, port, rank_main);
    for (const pid_t child : children) {
        int status = 0;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
}

/// A message there and one back, of the same size, over and over. The time is that of one way.
void PingPong(benchmark::State& state, bool has_processes) {
    const int64_t size_bytes = state.range(0);
    const auto num_rounds = static_cast<int>(state.max_iterations);
    const MessageSpec spec = {.shape = {size_bytes / 4}};
    std::vector<double> seconds;
    RunAll(2, has_processes, [&](const Mesh& mesh) {
        LinkEnds ends = mesh.world->OpenLinks({{.from = 0, .to = 1, .direction = Direction::kForward},
                                               {.from = 1, .to = 0, .direction = Direction::kBackward}});
        // What goes back is what has come.
        auto tensor = Tensor::Zeros(spec.shape, spec.dtype, mesh.device);
        const auto round = [&] {
            const bool is_first = mesh.rank == 0;
            Receiver& receiver =
                *ends.receivers.at({1 - mesh.rank, is_first ? Direction::kBackward : Direction::kForward});
            Sender& sender = *ends.senders.at({1 - mesh.rank, is_first ? Direction::kForward : Direction::kBackward});
            const auto pending = receiver.Post(spec);
            if (is_first) {
                sender.Send(std::move(tensor), spec.tag);
            }
            tensor = pending->Wait();
            if (!is_first) {
                sender.Send(std::move(tensor), spec.tag);
            }
        };
        for (int i = 0; i < kWarmUp; ++i) {
            round();
        }
        if (mesh.rank != 0) {
            for (int i = 0; i < num_rounds; ++i) {
                round();
            }
            mesh.world->Barrier();
            return;
        }
        for ([[maybe_unused]] auto _ : state) {
            const auto start = std::chrono::steady_clock::now();
            round();
            const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
            seconds.push_back(elapsed.count() / 2);
            state.SetIterationTime(seconds.back());
        }
        mesh.world->Barrier();
    });
    ReportMedian(std::move(seconds), state);
}

/// What the TCP connections of this process have sent so far.
int64_t BytesSent() {
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        tcp_info info = {};
        socklen_t size = sizeof(info);
        const int fd = std::stoi(entry.path().filename());
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
            bytes += static_cast<int64_t>(info.tcpi_bytes_acked);
        }
    }
    return bytes;
}

/// Ranks sum a tensor. sent_to_floor: what this rank sent, beside the least that a rank must, 2 (N - 1) / N of it.
void AllReduce(benchmark::State& state, bool has_processes) {
    const auto num_ranks = static_cast<int>(state.range(0));
    const int64_t size_bytes = state.range(1);
    const auto num_rounds = static_cast<int>(state.max_iterations);
    double sent_bytes = 0.0;
    std::vector<double> seconds;
    RunAll(num_ranks, has_processes, [&](const Mesh& mesh) {
        const TensorList sum = {Tensor::Zeros({size_bytes / 4}, DataType::kFloat32, mesh.device)};
        for (int i = 0; i < kWarmUp; ++i) {
            mesh.world->AllReduceSum(sum);
        }
        if (mesh.rank != 0) {
            for (int i = 0; i < num_rounds; ++i) {
                mesh.world->AllReduceSum(sum);
            }
            mesh.world->Barrier();
            return;
        }
        const int64_t before = BytesSent();
        for ([[maybe_unused]] auto _ : state) {
            const auto start = std::chrono::steady_clock::now();
            mesh.world->AllReduceSum(sum);
            const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
            seconds.push_back(elapsed.count());
            state.SetIterationTime(seconds.back());
        }
        sent_bytes = static_cast<double>(BytesSent() - before) / num_rounds;
        mesh.world->Barrier();
    });
    if (has_processes) {
        const double floor = 2.0 * (num_ranks - 1) / num_ranks * static_cast<double>(size_bytes);
        state.counters["sent_to_floor"] = sent_bytes / floor;
    }
    ReportMedian(std::move(seconds), state);
}

void PingPongSizes(benchmark::internal::Benchmark* bench) {
    for (int64_t size = 4; size <= kLargest; size *= 16) {
        bench->Arg(size);
    }
}

// The other ranks must know how many rounds there are.
BENCHMARK_CAPTURE(PingPong, threads, false)->Apply(PingPongSizes)->Iterations(200)->UseManualTime();
BENCHMARK_CAPTURE(PingPong, gloo, true)->Apply(PingPongSizes)->Iterations(200)->UseManualTime();
BENCHMARK_CAPTURE(AllReduce, threads, false)->ArgsProduct({{2, 4}, {4096, 16 << 20}})->Iterations(50)->UseManualTime();
BENCHMARK_CAPTURE(AllReduce, gloo, true)->ArgsProduct({{2, 4}, {4096, 16 << 20}})->Iterations(50)->UseManualTime();

}  // namespace
}  // namespace infini_train::comm

BENCHMARK_MAIN();
