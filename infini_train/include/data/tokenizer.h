#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace infini_train::data {

/// Between text and token ids. Text is bytes, not necessarily UTF-8: Decode(Encode(text)) is text. Threads may share a
/// tokenizer.
class Tokenizer {
 public:
    /// The id of each special token by its name, as "<|endoftext|>".
    using SpecialTokens = std::map<std::string, int32_t, std::less<>>;

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
    /// Those that have a name.
    virtual const SpecialTokens& special_tokens() const = 0;
    /// The special token after a document, where there is one.
    virtual std::optional<int32_t> end_of_text() const = 0;
    /// The special token before a document, where there is one.
    virtual std::optional<int32_t> begin_of_text() const = 0;

    /// For prompts: the name of a special token in the text becomes that token, the longest where several begin at one
    /// place. What is between them is encoded piece by piece.
    std::vector<int32_t> EncodeWithSpecials(std::string_view text) const;
};

/// The value of --tokenizer:
/// - `byte`: one token a byte;
/// - a file: llm.c's tokenizer .bin; base64 ranks (cl100k_base.tiktoken, LLaMA-3's tokenizer.model); tokenizer.json of
///   Hugging Face with byte-level BPE. What it is says its content, not its name;
/// - a folder: its tokenizer.json, else vocab.json and merges.txt of GPT-2, else tokenizer.model.
/// Throws Error for anything else, and for a file that is not as it must be.
std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& name);

}  // namespace infini_train::data
