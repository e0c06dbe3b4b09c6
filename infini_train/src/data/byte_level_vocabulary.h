#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

#include "infini_train/src/data/byte_pair_vocabulary.h"

namespace infini_train::data {

/// A vocabulary of JSON, {"token": id, ...} in the byte-level alphabet, and merges of its tokens, one after the other
/// by rank. For vocab.json and tokenizer.json.
class ByteLevelVocabulary {
 public:
    /// The value of a tokenizer's JSON. Throws Error when it is none, or nested deeper than any tokenizer's.
    static nlohmann::json ParseJson(const std::string& path, const std::string& bytes);

    /// special_tokens: in addition, or some of the vocabulary. Throws Error unless the ids of all are 0, 1, ..., each
    /// once.
    ByteLevelVocabulary(const std::string& path, const nlohmann::json& vocabulary,
                        const Tokenizer::SpecialTokens& special_tokens);

    /// place: for messages, "line 7". Throws Error when one of the two, or what they join to, is not in the vocabulary.
    void AddMerge(std::string_view left, std::string_view right, const std::string& place);

    /// Makes special what is neither a byte nor made by a merge. After the merges.
    void MarkUnmergedSpecial();

    /// The vocabulary with its merges; the caller gives it its pattern. Throws Error for a token that is not in the
    /// byte-level alphabet.
    BytePairVocabulary Finish();

 private:
    void AddName(const std::string& name, int64_t id);
    int32_t IdOf(std::string_view name, const std::string& place) const;

    std::string path_;
    std::map<std::string, int32_t, std::less<>> ids_;
    std::vector<std::string> names_;  // of each id
    std::vector<bool> is_merged_;     // of each id
    std::vector<BytePairMerge> merges_;
    Tokenizer::SpecialTokens special_tokens_;
};

}  // namespace infini_train::data
