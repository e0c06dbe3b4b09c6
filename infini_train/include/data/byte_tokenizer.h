#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/include/data/tokenizer.h"

namespace infini_train::data {

/// One token a byte: ids 0 to 255 are the bytes, 256 is the end of a text, which has no name.
class ByteTokenizer : public Tokenizer {
 public:
    std::vector<int32_t> Encode(std::string_view text) const override;
    std::string Decode(std::span<const int32_t> tokens) const override;
    int vocab_size() const override { return 257; }
    const SpecialTokens& special_tokens() const override { return special_tokens_; }
    std::optional<int32_t> end_of_text() const override { return 256; }
    std::optional<int32_t> begin_of_text() const override { return std::nullopt; }

 private:
    SpecialTokens special_tokens_ = {};
};

}  // namespace infini_train::data
