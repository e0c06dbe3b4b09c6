#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace infini_train::data {

/// What kind of ids a file holds. A run reads one kind.
enum class TokenKind {
    kGpt2,    // llm.c file of uint16: magic 20240520, version 1
    kLlama3,  // llm.c file of uint32: magic 20240801, version 7
    kText,    // plain text, file name ending in ".txt": one token a byte
};

/// "GPT-2 tokens", "LLaMA-3 tokens", "text"
std::string_view Name(TokenKind kind);

/// A file of tokens, mapped read-only: opening it reads its header alone. A copy shares the mapping.
///
/// An llm.c file is 256 little-endian int32 (magic, version, number of tokens, zeros), then the tokens, and nothing
/// after them.
class TokenFile {
 public:
    /// Throws Error unless every field of the header and the size of the file are as they must be.
    explicit TokenFile(const std::string& path);

    const std::string& path() const { return path_; }
    TokenKind kind() const { return kind_; }
    int64_t num_tokens() const { return num_tokens_; }

    /// Reads all tokens; throws Error for the first id that is not in [0, vocab_size). Costs nothing where the type of
    /// the ids cannot hold one.
    void CheckVocab(int64_t vocab_size) const;

    /// Tokens [first, first + count) as int32. An id of 2^31 or more, which CheckVocab refuses, becomes negative.
    void Read(int64_t first, int64_t count, int32_t* tokens) const;

 private:
    void ReadHeader(const std::byte* file, uint64_t size_bytes);

    std::string path_;
    TokenKind kind_ = TokenKind::kText;
    int64_t num_tokens_ = 0;
    std::shared_ptr<const std::byte> mapping_;
    const std::byte* tokens_ = nullptr;
};

}  // namespace infini_train::data
