#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/byte_pair_files.h"
#include "infini_train/src/data/pretokenizer.h"

namespace infini_train::data {
namespace {

constexpr size_t kGpt2Ranks = 50256;
constexpr size_t kCl100kRanks = 100256;
constexpr size_t kLlama3Ranks = 128000;
constexpr int kLlama3SpecialTokens = 256;

/// The bytes of base64 (RFC 4648, with padding); nothing when it is not.
std::optional<std::string> FromBase64(std::string_view text) {
    constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (text.empty() || text.size() % 4 != 0) {
        return std::nullopt;
    }
    const size_t num_padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
    text.remove_suffix(num_padding);
    std::string bytes;
    uint32_t bits = 0;  // those that do not make a byte yet are the lowest num_bits
    int num_bits = 0;
    for (const char character : text) {
        const size_t value = kAlphabet.find(character);
        if (value == std::string_view::npos) {
            return std::nullopt;
        }
        bits = bits << 6 | static_cast<uint32_t>(value);
        num_bits += 6;
        if (num_bits >= 8) {
            num_bits -= 8;
            bytes.push_back(static_cast<char>(bits >> num_bits & 0xff));
        }
    }
    const uint32_t left_over = bits & ((uint32_t{1} << num_bits) - 1);
    return left_over == 0 ? std::optional(bytes) : std::nullopt;
}

void AddRank(const std::string& path, std::string_view line, std::vector<std::string>* tokens) {
    const size_t space = line.find(' ');
    const std::optional<std::string> token = FromBase64(line.substr(0, space));
    size_t rank = 0;
    const char* const end = line.data() + line.size();
    const auto result = space == std::string_view::npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                                        : std::from_chars(line.data() + space + 1, end, rank);
    if (!token.has_value() || result.ec != std::errc() || result.ptr != end) {
        throw Error({.where = path, .what = StrCat("line ", tokens->size() + 1, " is not a base64 text and its rank")});
    }
    if (rank != tokens->size()) {
        throw Error({.where = path,
                     .what = StrCat("line ", tokens->size() + 1, " has the wrong rank"),
                     .got = StrCat(rank),
                     .wanted = StrCat(tokens->size())});
    }
    if (token->size() > kMaxRankedTokenBytes) {
        throw Error({.where = path,
                     .what = StrCat("the token of rank ", rank, " is too long"),
                     .got = StrCat(token->size(), " bytes"),
                     .wanted = StrCat("at most ", kMaxRankedTokenBytes)});
    }
    tokens->push_back(*token);
}

Tokenizer::SpecialTokens Llama3SpecialTokens() {
    const auto first = static_cast<int32_t>(kLlama3Ranks);
    Tokenizer::SpecialTokens tokens = {
        {"<|begin_of_text|>", first},       {"<|end_of_text|>", first + 1},   {"<|finetune_right_pad_id|>", first + 4},
        {"<|start_header_id|>", first + 6}, {"<|end_header_id|>", first + 7}, {"<|eom_id|>", first + 8},
        {"<|eot_id|>", first + 9},          {"<|python_tag|>", first + 10}};
    constexpr std::array kReservedBelow = {2, 3, 5};
    int num_reserved = 0;
    for (const int offset : kReservedBelow) {
        tokens.emplace(StrCat("<|reserved_special_token_", num_reserved++, "|>"), first + offset);
    }
    for (int offset = 11; offset < kLlama3SpecialTokens; ++offset) {
        tokens.emplace(StrCat("<|reserved_special_token_", num_reserved++, "|>"), first + offset);
    }
    return tokens;
}

}  // namespace

BytePairVocabulary ReadTiktokenRanks(const std::string& path, const std::string& bytes) {
    BytePairVocabulary vocabulary = {.file = path, .whole_words_first = true};
    std::string_view rest = bytes;
    while (!rest.empty()) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        AddRank(path, line, &vocabulary.tokens);
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    }
    switch (vocabulary.tokens.size()) {
        case kGpt2Ranks:
            vocabulary.pattern = kGpt2Pattern;
            vocabulary.special_tokens = {{"<|endoftext|>", 50256}};
            break;
        case kCl100kRanks:
            vocabulary.pattern = kLlama3Pattern;
            vocabulary.special_tokens = {{"<|endoftext|>", 100257},
                                         {"<|fim_prefix|>", 100258},
                                         {"<|fim_middle|>", 100259},
                                         {"<|fim_suffix|>", 100260},
                                         {"<|endofprompt|>", 100276}};
            break;
        case kLlama3Ranks:
            vocabulary.pattern = kLlama3Pattern;
            vocabulary.special_tokens = Llama3SpecialTokens();
            break;
        default:
            throw Error({.where = path,
                         .what = "the pattern and the special tokens of this file are not known",
                         .got = StrCat(vocabulary.tokens.size(), " ranks"),
                         .wanted = StrCat(kGpt2Ranks, " (GPT-2), ", kCl100kRanks, " (cl100k) or ", kLlama3Ranks,
                                          " (LLaMA-3)")});
    }
    vocabulary.merges = MergesOfRanks(vocabulary.tokens);
    int32_t last = 0;
    for (const auto& [name, id] : vocabulary.special_tokens) {
        last = std::max(last, id);
    }
    vocabulary.tokens.resize(static_cast<size_t>(last) + 1);
    return vocabulary;
}

}  // namespace infini_train::data
