#pragma once

#include <cstdint>

namespace infini_train::data {

/// A random order of the rows of an epoch: a permutation of [0, num_rows) that (seed, epoch) decide, the same on every
/// rank and after a resume. Nothing is stored: a Feistel network over Philox words permutes the next power of 4, and
/// what falls outside is permuted on until it falls inside (Black and Rogaway, "Ciphers with arbitrary finite domains",
/// CT-RSA 2002).
class RowOrder {
 public:
    RowOrder(int64_t num_rows, uint64_t seed, int64_t epoch);

    /// The row that is the index-th of the epoch, in [0, num_rows) as the index is.
    int64_t operator()(int64_t index) const;

 private:
    uint64_t Permute(uint64_t value) const;

    uint64_t num_rows_;
    uint64_t seed_;
    uint64_t epoch_;
    int half_bits_ = 1;
};

}  // namespace infini_train::data
