#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/include/data/token_file.h"

namespace infini_train::data {

/// How far a run has read: the next row is the row-th of this epoch, both from 0. Of a dataset with other files or
/// another sequence length it says nothing.
struct DataPosition {
    int64_t epoch = 0;
    int64_t row = 0;

    bool operator==(const DataPosition&) const = default;
};

/// The rows of an epoch: T tokens and, as targets, the T that are one further on. A shard of n tokens has
/// floor((n - 1) / T) rows, row i from its token i T; the rows of the next shard follow. An epoch reads them in this
/// order, or shuffled: in the order of RowOrder, another one in each epoch. Reading changes nothing, so the threads of
/// a process may share a dataset, and a copy shares the mapped files.
///
/// A step takes the next rows of the epoch, over the ends of shards. Where fewer are left than a step needs, they are
/// dropped and the next epoch begins. So a step's tokens depend on the position and the number of its rows, not on how
/// they are cut into micro-batches and ranks.
class TokenDataset {
 public:
    /// One shard, or all that match a glob pattern, sorted by the bytes of their names; shuffled when there is a seed.
    /// Throws Error when there is none, when one is not a token file, and when they are of different kinds.
    TokenDataset(const std::string& path_or_pattern, int64_t sequence_length,
                 std::optional<uint64_t> shuffle_seed = std::nullopt);

    int64_t sequence_length() const { return sequence_length_; }
    /// Of an epoch.
    int64_t num_rows() const { return first_rows_.back(); }
    int64_t num_tokens() const;
    const std::vector<TokenFile>& shards() const { return shards_; }

    /// Throws Error for the first id that is not in [0, vocab_size), with its file. Reads all shards.
    void CheckVocab(int64_t vocab_size) const;
    /// Throws Error when an epoch has fewer rows: not enough for one step.
    void CheckHasRows(int64_t num_rows) const;
    /// Throws Error for a position, of a checkpoint, that is not in this data.
    void CheckPosition(const DataPosition& position) const;

    int64_t StepsPerEpoch(int64_t rows_per_step) const;
    /// Where a step begins for a run that has read up to this position: there, or at the next epoch. Throws Error when
    /// an epoch has no step.
    DataPosition StepStart(const DataPosition& position, int64_t rows_per_step) const;
    /// How far a run has read after that step. With another rows_per_step from there on, no row is read twice.
    DataPosition NextPosition(const DataPosition& position, int64_t rows_per_step) const;
    /// What an epoch leaves out, for the log: "tokens.bin: 250 of 1000 tokens are in no step ...". Empty when nothing
    /// is.
    std::string DropNote(int64_t rows_per_step) const;

    /// The rows from the offset-th after a position, num_rows of them, all in its epoch. inputs and targets have
    /// num_rows x T places.
    void ReadRows(const DataPosition& position, int64_t offset, int64_t num_rows, int32_t* inputs,
                  int32_t* targets) const;

 private:
    /// Rows as they lie in the shards.
    void CopyRows(int64_t first_row, int64_t num_rows, int32_t* inputs, int32_t* targets) const;

    std::string name_;  // as given
    int64_t sequence_length_;
    std::optional<uint64_t> shuffle_seed_;
    std::vector<TokenFile> shards_;
    std::vector<int64_t> first_rows_;  // of each shard, and the number of all
};

}  // namespace infini_train::data
