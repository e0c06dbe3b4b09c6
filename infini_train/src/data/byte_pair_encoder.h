#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/src/data/byte_pair_vocabulary.h"
#include "infini_train/src/data/word_index.h"

namespace infini_train::data {

/// Byte-pair encoding of words (Sennrich et al. 2016; over bytes, as GPT-2 does): at first each byte is a token, then
/// neighbours are merged by rank until no merge is left. A word of n bytes takes O(n log n) time and about 28 n bytes
/// of memory.
class BytePairEncoder {
 private:
    struct Node {
        uint32_t previous = 0;
        uint32_t next = 0;
        int32_t token = 0;
        int32_t rank = 0;  // of the merge with the next node
        int32_t merged = 0;
    };
    struct Candidate {
        int32_t rank = 0;
        uint32_t node = 0;
    };

 public:
    /// Memory that Encode uses again from word to word. One thread's.
    struct Scratch {
        std::vector<Node> nodes = {};
        std::vector<Candidate> candidates = {};
    };

    /// Throws Error when a byte has no token, two tokens have the same bytes, or a pair has two merges. The ids in the
    /// merges are those of tokens.
    explicit BytePairEncoder(const BytePairVocabulary& vocabulary);
    BytePairEncoder(const BytePairEncoder&) = delete;
    BytePairEncoder& operator=(const BytePairEncoder&) = delete;

    /// Appends the tokens of the word, which has 1 to kMaxWordBytes bytes.
    void Encode(std::string_view word, Scratch* scratch, std::vector<int32_t>* tokens) const;

    static constexpr size_t kMaxWordBytes = size_t{1} << 31;

    const std::vector<std::string>& tokens() const { return tokens_; }

 private:
    /// A merge without its left token, by which they are grouped.
    struct Pair {
        int32_t right = 0;
        int32_t token = 0;
        int32_t rank = 0;
    };

    WordIndex IndexTokens(const std::string& file);
    void IndexMerges(const BytePairVocabulary& vocabulary);
    void IndexMergedWords();
    const Pair* Find(int32_t left, int32_t right) const;
    void Rate(uint32_t node, Scratch* scratch) const;
    void Merge(std::string_view word, Scratch* scratch, std::vector<int32_t>* tokens) const;

    std::vector<std::string> tokens_;
    std::array<int32_t, 256> byte_tokens_ = {};
    std::vector<Pair> pairs_;         // of left token 0, of 1, ...; sorted by the right one
    std::vector<size_t> first_pair_;  // of each left token, and the number of all
    WordIndex words_;                 // what needs no merging
};

}  // namespace infini_train::data
