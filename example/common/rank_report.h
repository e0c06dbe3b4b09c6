#pragma once

#include <cstdint>
#include <vector>

#include "infini_train/include/comm/mesh.h"

namespace infini_train {

/// What each rank tells all others at the end of a step.
struct RankReport {
    int64_t peak_bytes = 0;   // the most that the rank has had at once
    int64_t save_state = 0;   // of the checkpoint that it writes
    int64_t stop_signal = 0;  // that asked its process to stop; 0: none
};

/// The reports of all ranks of the world, in their order. Collective.
std::vector<RankReport> GatherReports(const RankReport& own, const comm::Mesh& mesh);

int64_t LargestPeak(const std::vector<RankReport>& reports);
/// The first signal that any rank has seen: the same on every rank. 0: none.
int StopSignalOf(const std::vector<RankReport>& reports);

}  // namespace infini_train
