#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "infini_train/include/core/tensor.h"
#include "infini_train/src/comm/gloo/process_round.h"

namespace infini_train::comm {

/// What a part of the list needs on its way.
struct SumMemory {
    std::vector<std::vector<std::byte>> own = {};  // by rank of this process, what it brings, where that lies in pieces
    std::vector<std::vector<std::byte>> others = {};  // by rank of the group, its part of our share; of our ranks none
    std::vector<std::byte> sum = {};
};

/// Sums over all ranks of a group, added in rank order: ((x0 + x1) + x2) + ... The bits are those of ranks that are
/// threads of one process. Each of P processes owns 1/P of the elements: it gets them from every rank, adds, and gives
/// the sum to each process. With one rank a process, each sends and receives 2 (P - 1) / P times the bytes of the list.
class ProcessSum {
 public:
    /// The tensors of the ranks of this process, in order, become the sum. Their lists agree, with those of the other
    /// processes, too. Throws WaitError.
    void AllReduce(const GroupProcesses& processes, const std::vector<const TensorList*>& ranks);

 private:
    // More than one, so that the connections carry one chunk while another is copied and added.
    static constexpr size_t kNumUnderWay = 3;

    // Kept from call to call.
    std::array<SumMemory, kNumUnderWay> memory_;
};

}  // namespace infini_train::comm
