#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/include/data/tokenizer.h"

namespace infini_train::data {

/// left and right beside each other become token. Of the merges that a word allows, the lowest rank comes first, the
/// leftmost of equal ranks.
struct BytePairMerge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t token = 0;
    int32_t rank = 0;
};

/// What a tokenizer's files say.
struct BytePairVocabulary {
    std::string file = {};                 // for messages
    std::vector<std::string> tokens = {};  // the bytes of each id; empty for a special token
    std::vector<BytePairMerge> merges = {};
    bool whole_words_first = false;  // a word that is a token becomes that token, whether merges make it or not
    std::string pattern = {};        // of the words; pretokenizer.h
    Tokenizer::SpecialTokens special_tokens = {};
};

/// The longest token of a file of ranks: MergesOfRanks looks at every way to cut one.
inline constexpr size_t kMaxRankedTokenBytes = 255;

/// For files that give each token its rank, the id, and no merges: every pair of tokens that joins to a token becomes
/// it. Special tokens take no part. No token is longer than kMaxRankedTokenBytes.
std::vector<BytePairMerge> MergesOfRanks(const std::vector<std::string>& tokens);

}  // namespace infini_train::data
