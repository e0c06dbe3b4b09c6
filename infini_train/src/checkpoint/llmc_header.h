#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "infini_train/include/checkpoint/llmc_gpt2.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"
#include "infini_train/include/common/file.h"

// What every llm.c file begins with, and the rules for the headers of weights that readers and writers share.

namespace infini_train::checkpoint {

inline constexpr int kNumHeaderWords = 256;
inline constexpr size_t kHeaderBytes = kNumHeaderWords * sizeof(int32_t);
inline constexpr int32_t kGpt2Magic = 20240326;
inline constexpr int32_t kGpt2DebugStateMagic = 20240327;
inline constexpr int32_t kLlama3Magic = 20240803;  // of weights and of debug states
inline constexpr int32_t kFloat32Version = 3;
inline constexpr int32_t kBFloat16Version = 5;

// Far above any model, so that a header of noise is refused for its own sake and not just for the file's size.
inline constexpr int64_t kMaxBlockSize = int64_t{1} << 20;
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 10000;
inline constexpr int64_t kMaxChannels = int64_t{1} << 20;

/// The words of a header. What is refused throws an Error that names the file, the word, what it holds and what it
/// should.
class LlmcHeader {
 public:
    using Words = std::array<int32_t, kNumHeaderWords>;

    explicit LlmcHeader(const ReadOnlyFile& file);
    LlmcHeader(const std::string& path, const Words& words) : path_(path), words_(words) {}

    const std::string& path() const { return path_; }
    int32_t word(int index) const { return words_.at(static_cast<size_t>(index)); }
    float FloatWord(int index) const;

    void CheckMagic(int32_t wanted) const;
    /// The dtype that a version of weights stands for.
    DataType ReadVersion() const;
    /// A word that must lie in [min, max].
    int64_t ReadField(int index, std::string_view name, int64_t min, int64_t max) const;
    /// That the words from this one on, which the format does not use, are zero.
    void CheckUnused(int first) const;

 private:
    std::string path_;
    Words words_;
};

/// Throws Error unless the file has exactly this size; without a value: the size does not fit 64 bits.
void CheckFileSize(const ReadOnlyFile& file, std::optional<uint64_t> wanted);

/// The fields of a header of weights, checked one by one and against each other.
LlmcGpt2Header ParseGpt2Header(const LlmcHeader& words);
/// The same but for head_is_tied. size_bytes is that of the file, from which the width of the MLP follows.
LlmcLlama3Header ParseLlama3Header(const LlmcHeader& words, uint64_t size_bytes);

}  // namespace infini_train::checkpoint
