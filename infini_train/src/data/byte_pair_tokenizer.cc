#include "infini_train/src/data/byte_pair_tokenizer.h"

#include <initializer_list>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::data {
namespace {

std::optional<int32_t> FindSpecial(const Tokenizer::SpecialTokens& tokens,
                                   std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
        if (const auto place = tokens.find(name); place != tokens.end()) {
            return place->second;
        }
    }
    return std::nullopt;
}

}  // namespace

BytePairTokenizer::BytePairTokenizer(const BytePairVocabulary& vocabulary)
    : file_(vocabulary.file),
      encoder_(vocabulary),
      pretokenizer_(vocabulary.file, vocabulary.pattern),
      special_tokens_(vocabulary.special_tokens),
      end_of_text_(FindSpecial(special_tokens_, {"<|endoftext|>", "<|end_of_text|>"})),
      begin_of_text_(FindSpecial(special_tokens_, {"<|begin_of_text|>"})) {}

std::vector<int32_t> BytePairTokenizer::Encode(std::string_view text) const {
    std::vector<int32_t> tokens;
    BytePairEncoder::Scratch scratch;
    pretokenizer_.ForEachWord(text, [&](std::string_view word) {
        if (word.size() > BytePairEncoder::kMaxWordBytes) {
            throw Error({.where = file_,
                         .what = "a text has a word that is too long",
                         .got = StrCat(word.size(), " bytes"),
                         .wanted = StrCat("at most ", BytePairEncoder::kMaxWordBytes)});
        }
        encoder_.Encode(word, &scratch, &tokens);
    });
    return tokens;
}

std::string BytePairTokenizer::Decode(std::span<const int32_t> tokens) const {
    std::string text;
    for (const int32_t token : tokens) {
        if (token < 0 || token >= vocab_size()) {
            throw Error({.where = file_,
                         .what = "an id that this tokenizer does not have",
                         .got = StrCat(token),
                         .wanted = StrCat("0 to ", vocab_size() - 1)});
        }
        text += encoder_.tokens()[static_cast<size_t>(token)];
    }
    return text;
}

}  // namespace infini_train::data
