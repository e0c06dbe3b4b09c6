#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infini_train/include/data/token_file.h"
#include "infini_train/include/data/token_writer.h"

namespace infini_train {

/// A stream of documents as one token file or as several; none has its name before Commit.
class TokenShards {
 public:
    struct Options {
        std::string path = {};
        data::TokenKind kind = data::TokenKind::kGpt2;
        int64_t shard_tokens = 0;               // 0: one file, path; else so many in each but the last
        std::optional<int32_t> separator = {};  // between two documents
    };

    /// Throws Error when no file can be made there.
    explicit TokenShards(const Options& options);

    /// A document, or a part of one that goes on where the last ended. One without tokens leaves no trace. Throws Error
    /// when the disk is full and when it becomes too much for a file.
    void Append(std::span<const int32_t> tokens, bool begins_document);
    int64_t num_tokens() const { return num_tokens_; }

    /// Brings all to the disk; Append is over.
    void Finish();
    /// Gives all files their names. Shards with higher numbers, of an earlier output, are removed: a pattern that
    /// matches the new ones would take them too.
    void Commit();
    /// A line for each file, after Commit.
    std::string Summary() const;

 private:
    std::string ShardPath(int64_t number) const;
    void Write(std::span<const int32_t> tokens);
    void RemoveOlderShards();

    Options options_;
    std::vector<std::unique_ptr<data::TokenFileWriter>> shards_;
    std::vector<std::string> removed_paths_;
    int64_t num_tokens_ = 0;
    bool separator_is_due_ = false;
};

}  // namespace infini_train
