#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/include/data/token_file.h"

namespace infini_train::data {

/// Where the next step takes its rows from: epochs follow each other, and in each the rows are taken in its order.
struct DataPosition {
    int64_t epoch = 0;
    int64_t row = 0;  // rows of the epoch that lie behind

    bool operator==(const DataPosition&) const = default;
};

/// The rows of one epoch: T tokens and, as targets, the T that are one further on. A shard of n tokens has
/// floor((n - 1) / T) rows, row i from its token i T; the rows of the next shard follow. Reading changes nothing, so
/// the threads of a process may share a dataset, and a copy shares the mapped files.
///
/// A step takes the next rows of the epoch, over the ends of shards. Where fewer are left than a step needs, they are
/// dropped and the next epoch begins. So a step's tokens depend on the number of its rows, not on how they are cut into
/// micro-batches and ranks.
class TokenDataset {
 public:
    /// One shard, or all that match a glob pattern, sorted by the bytes of their names. Throws Error when there is
    /// none, when one is not a token file, and when they are of different kinds.
    TokenDataset(const std::string& path_or_pattern, int64_t sequence_length);

    int64_t sequence_length() const { return sequence_length_; }
    /// Of an epoch.
    int64_t num_rows() const { return first_rows_.back(); }
    int64_t num_tokens() const;
    const std::vector<TokenFile>& shards() const { return shards_; }

    /// Throws Error for the first id that is not in [0, vocab_size), with its file. Reads all shards.
    void CheckVocab(int64_t vocab_size) const;
    /// Throws Error when an epoch has fewer rows: not enough for one step.
    void CheckHasRows(int64_t num_rows) const;

    /// From now on each epoch takes its rows in a RowOrder of its own.
    void Shuffle(uint64_t seed) { seed_ = seed; }

    /// Where a step really begins that would begin there: with the next epoch, where this one has fewer rows left than
    /// the step needs. Throws Error when an epoch has no step.
    DataPosition StepPosition(const DataPosition& position, int64_t rows_per_step) const;
    /// After that step.
    DataPosition NextPosition(const DataPosition& position, int64_t rows_per_step) const;
    /// num_rows rows of the step at the position, from its first_row-th on. Replicas read different parts of the same
    /// step.
    void ReadStepRows(const DataPosition& position, int64_t rows_per_step, int64_t first_row, int64_t num_rows,
                      int32_t* inputs, int32_t* targets) const;
    /// What an epoch leaves out, for the log: "tokens.bin: 250 of 1000 tokens are in no step ...". Empty when nothing
    /// is.
    std::string DropNote(int64_t rows_per_step) const;

    /// Rows [first_row, first_row + num_rows) as they lie in the shards. inputs and targets have num_rows x T places.
    void ReadRows(int64_t first_row, int64_t num_rows, int32_t* inputs, int32_t* targets) const;

 private:
    std::string name_;  // as given
    int64_t sequence_length_;
    std::vector<TokenFile> shards_;
    std::vector<int64_t> first_rows_;  // of each shard, and the number of all
    std::optional<uint64_t> seed_;     // of the order of rows; none: as they lie
};

}  // namespace infini_train::data
