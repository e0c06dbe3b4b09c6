#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infini_train/include/data/tokenizer.h"

namespace infini_train::data {

/// One token a byte: ids 0 to 255 are the bytes, 256 is the end of a text.
class ByteTokenizer : public Tokenizer {
 public:
    std::vector<int32_t> Encode(std::string_view text) const override;
    std::string Decode(std::span<const int32_t> tokens) const override;
    int vocab_size() const override { return 257; }
    std::optional<int32_t> end_of_text() const override { return 256; }
};

}  // namespace infini_train::data
