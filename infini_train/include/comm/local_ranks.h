#pragma once

#include <functional>

#include "infini_train/include/comm/mesh.h"

namespace infini_train::comm {

struct LocalRanksOptions {
    MeshShape shape = {};
    double timeout_s = 600.0;  // of whatever waits for another rank
    int threads_per_rank = 0;  // OpenMP threads; 0: the rank's share of the cores, at least 1
    double grace_s = 10.0;     // after the first error, for all ranks to end
};

/// Runs rank_main on a thread a rank, each with a CPU device of its own, and returns when all have ended. Messages and
/// sums go through memory. A single rank runs on the calling thread, whose number of OpenMP threads is as before
/// afterwards. The cores to share are those this process may use, and no more than the calling thread's OpenMP would
/// (OMP_NUM_THREADS); the first ranks get the remainder.
///
/// The first rank to throw ends all: whoever waits for a rank throws, and that first error is thrown here as an Error,
/// its text led by "[rank r]" when there are several ranks, its exit code kept (1 for an exception that is no Error). A
/// rank that does not end within grace_s of it (in a computation that has no end, say) ends the process: that error on
/// stderr, its exit code.
void RunLocalRanks(const LocalRanksOptions& options, const std::function<void(const Mesh&)>& rank_main);

}  // namespace infini_train::comm
