#pragma once

#include <cstdint>

#include "infini_train/include/core/random.h"

namespace infini_train::data {

/// A permutation of [0, num_rows) that depends on (num_rows, seed, epoch) alone: every rank has the same one, and so
/// has a resumed run. Nothing is stored: it is a Feistel network (Luby and Rackoff, "How to construct pseudorandom
/// permutations from pseudorandom functions", SIAM J. Comput. 17, 1988) over the next power of two, walked until it is
/// back inside.
class RowOrder {
 public:
    RowOrder(int64_t num_rows, uint64_t seed, int64_t epoch);

    /// Which row is read as the i-th of the epoch.
    int64_t operator()(int64_t i) const;

 private:
    uint64_t Scramble(uint64_t value) const;

    int64_t num_rows_;
    RandomStream random_;
    int num_low_bits_;
    int num_high_bits_;
};

}  // namespace infini_train::data
