#include "infini_train/include/data/byte_tokenizer.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::data {

std::vector<int32_t> ByteTokenizer::Encode(std::string_view text) const {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (const char byte : text) {
        tokens.push_back(static_cast<unsigned char>(byte));
    }
    return tokens;
}

std::string ByteTokenizer::Decode(std::span<const int32_t> tokens) const {
    std::string text;
    text.reserve(tokens.size());
    for (const int32_t token : tokens) {
        if (token < 0 || token >= vocab_size()) {
            throw Error({.where = "byte tokenizer",
                         .what = "an id that it does not have",
                         .got = StrCat(token),
                         .wanted = StrCat("0 to ", vocab_size() - 1)});
        }
        if (token != end_of_text()) {
            text.push_back(static_cast<char>(token));
        }
    }
    return text;
}

}  // namespace infini_train::data
