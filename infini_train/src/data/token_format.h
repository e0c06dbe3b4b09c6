#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "infini_train/include/data/token_file.h"

// How llm.c lays out a token file; see TokenFile.

namespace infini_train::data {

inline constexpr size_t kHeaderWords = 256;
using TokenHeader = std::array<int32_t, kHeaderWords>;  // magic, version, number of tokens, zeros
inline constexpr size_t kHeaderBytes = sizeof(TokenHeader);

inline constexpr int32_t kGpt2Magic = 20240520;
inline constexpr int32_t kGpt2Version = 1;
inline constexpr int32_t kLlama3Magic = 20240801;
inline constexpr int32_t kLlama3Version = 7;

inline constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();  // what the header can say

/// Of one token.
size_t TokenBytes(TokenKind kind);

/// Text files are known by their name, all others by their first bytes.
inline bool IsTextPath(std::string_view path) {
    return path.ends_with(".txt");
}

}  // namespace infini_train::data
