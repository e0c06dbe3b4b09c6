#pragma once

#include <cstddef>
#include <vector>

#include "infini_train/include/core/tensor.h"
#include "infini_train/src/comm/gloo/process_round.h"

namespace infini_train::comm {

/// Sums over all ranks of a group, added in rank order: ((x0 + x1) + x2) + ... The bits are those of ranks that are
/// threads of one process. Each of P processes owns 1/P of the elements: it gets them from every rank, adds, and gives
/// the sum to each process. With one rank a process, each sends and receives 2 (P - 1) / P times the bytes of the list.
class ProcessSum {
 public:
    /// The tensors of the ranks of this process, in order, become the sum. Their lists agree, with those of the other
    /// processes, too. Throws WaitError.
    void AllReduce(const GroupProcesses& processes, const std::vector<const TensorList*>& ranks);

 private:
    /// A part of one tensor of the list.
    struct Piece {
        size_t tensor = 0;
        size_t offset_bytes = 0;
        size_t size_bytes = 0;
    };

    /// The pieces lie one after the other in memory of our own.
    void AllReducePieces(const GroupProcesses& processes, const std::vector<const TensorList*>& ranks,
                         const std::vector<Piece>& pieces, DataType dtype);

    // Kept from call to call. Of a rank of this process, what it brings; of a rank of another its part of our share.
    std::vector<std::vector<std::byte>> own_;
    std::vector<std::vector<std::byte>> others_;
    std::vector<std::byte> sum_;
};

}  // namespace infini_train::comm
