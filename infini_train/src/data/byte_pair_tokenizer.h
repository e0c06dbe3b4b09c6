#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/include/data/tokenizer.h"
#include "infini_train/src/data/byte_pair_encoder.h"
#include "infini_train/src/data/byte_pair_vocabulary.h"
#include "infini_train/src/data/pretokenizer.h"

namespace infini_train::data {

/// Byte-level BPE, of GPT-2 and LLaMA-3 alike: words by a pattern, tokens of each by merges.
class BytePairTokenizer : public Tokenizer {
 public:
    /// Throws Error for a vocabulary or a pattern that is not as it must be.
    explicit BytePairTokenizer(const BytePairVocabulary& vocabulary);

    /// Throws Error for a word of more than 2 GiB.
    std::vector<int32_t> Encode(std::string_view text) const override;
    std::string Decode(std::span<const int32_t> tokens) const override;
    int vocab_size() const override { return static_cast<int>(encoder_.tokens().size()); }
    const SpecialTokens& special_tokens() const override { return special_tokens_; }
    /// <|endoftext|> or <|end_of_text|>
    std::optional<int32_t> end_of_text() const override { return end_of_text_; }
    /// <|begin_of_text|>
    std::optional<int32_t> begin_of_text() const override { return begin_of_text_; }

 private:
    std::string file_;
    BytePairEncoder encoder_;
    Pretokenizer pretokenizer_;
    SpecialTokens special_tokens_;
    std::optional<int32_t> end_of_text_;
    std::optional<int32_t> begin_of_text_;
};

}  // namespace infini_train::data
