#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/comm/process_place.h"

namespace infini_train::comm {

/// What carries tensors from rank to rank. kCopy: within one process, handed over where both ranks have the same memory
/// (CPU, one GPU), copied from GPU to GPU elsewhere. kGloo: between processes on CPUs, whose threads hand over among
/// themselves. kAuto: on GPUs kNccl for ranks with a GPU each and for processes; on CPUs kGloo for processes; else
/// kCopy.
enum class Transport { kAuto, kNccl, kGloo, kCopy };
/// The value of --transport. Throws Error for an unknown one.
Transport ParseTransport(std::string_view name);

struct RanksOptions {
    MeshShape shape = {};
    ProcessPlace process = {};  // of this process among those of the run, each with as many ranks
    DeviceType device = DeviceType::kCPU;
    Transport transport = Transport::kAuto;
    std::string fingerprint = {};  // lines "name=value" that all processes must have alike
    double timeout_s = 600.0;      // of whatever waits for another rank
    int threads_per_rank = 0;      // OpenMP threads; 0: the rank's share of the cores, at least 1
    double grace_s = 4.0;          // after the first error, for all ranks to end

    int num_ranks_of_process() const { return shape.num_ranks() / process.num_processes; }
    int first_rank() const { return process.index * num_ranks_of_process(); }
};

/// The transport that kAuto stands for, and what a user should be told of it, a line or nothing. Throws Error, naming
/// what to do, for ranks that do not divide among the processes and a transport that cannot be.
struct TransportChoice {
    Transport transport = Transport::kCopy;
    std::string note = {};
};
TransportChoice ChooseTransport(const RanksOptions& options);

/// Runs rank_main on a thread for each rank of this process, with a device of its own, and returns when all have ended.
/// A single rank runs on the calling thread, whose number of OpenMP threads is as before afterwards. The cores to share
/// are those this process may use, and no more than the calling thread's OpenMP would (OMP_NUM_THREADS, without which
/// the processes of a host share it, unless their launcher has given each cores of its own); the first ranks get the
/// remainder. GPUs are given out by the rank's place on its host.
///
/// The first rank to throw ends all, in every process: whoever waits for a rank throws, and that first error is thrown
/// here as an Error, its text led by "[rank r]" when there are several ranks, its exit code kept (1 for an exception
/// that is no Error). A rank that does not end within grace_s of it (in a computation that has no end, say) ends its
/// process: that error on stderr, its exit code.
void RunRanks(const RanksOptions& options, const std::function<void(const Mesh&)>& rank_main);

}  // namespace infini_train::comm
