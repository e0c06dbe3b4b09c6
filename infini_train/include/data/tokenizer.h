#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace infini_train::data {

/// Between text and token ids. Text is bytes, not necessarily UTF-8.
class Tokenizer {
 public:
    Tokenizer() = default;
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;
    virtual ~Tokenizer() = default;

    /// Special tokens are never made from text.
    virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
    /// Special tokens have no text. Throws Error for an id that is not in [0, vocab_size).
    virtual std::string Decode(std::span<const int32_t> tokens) const = 0;
    /// Ids are below it, special ones too.
    virtual int vocab_size() const = 0;
    /// The special token between documents, where there is one.
    virtual std::optional<int32_t> end_of_text() const = 0;
};

/// The value of --tokenizer. Throws Error for an unknown one.
std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& name);

}  // namespace infini_train::data
