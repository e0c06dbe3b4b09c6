#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/data/token_file.h"

namespace infini_train::data {

/// Writes an llm.c token file beside its final place; Commit moves it there. Without Commit nothing is left, and what
/// was there before stays: see AtomicFile.
class TokenFileWriter {
 public:
    /// kind: kGpt2 or kLlama3. Throws Error when a file cannot be made there.
    TokenFileWriter(const std::string& path, TokenKind kind);

    /// Throws Error for a negative id or one that does not fit the kind, for more than 2147483647 tokens in all, and
    /// when the disk is full.
    void Append(std::span<const int32_t> tokens);
    /// Brings all of it to the disk, still under its temporary name; nothing can be appended any more. Throws Error
    /// without tokens and when the disk fails. For files that must appear together: finish all, then commit all.
    void Finish();
    /// Finishes and gives the file its name.
    void Commit();

    const std::string& path() const { return file_.path(); }
    int64_t num_tokens() const { return num_tokens_; }
    int64_t size_bytes() const;

 private:
    AtomicFile file_;
    TokenKind kind_;
    int64_t num_tokens_ = 0;
    bool is_finished_ = false;
};

/// The whole of a token file at once.
void WriteTokenFile(const std::string& path, std::span<const int32_t> tokens, TokenKind kind);

}  // namespace infini_train::data
