#include "infini_train/include/data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>

#include "infini_train/include/common/error.h"
#include "infini_train/include/data/byte_tokenizer.h"
#include "infini_train/src/data/byte_pair_files.h"
#include "infini_train/src/data/byte_pair_tokenizer.h"

namespace infini_train::data {

std::vector<int32_t> Tokenizer::EncodeWithSpecials(std::string_view text) const {
    std::string first_bytes;
    std::set<size_t, std::greater<>> lengths;  // the longest name first
    for (const auto& [name, id] : special_tokens()) {
        first_bytes.push_back(name.front());
        lengths.insert(name.size());
    }
    std::vector<int32_t> tokens;
    const auto append = [&](std::string_view piece) {
        const std::vector<int32_t> more = Encode(piece);
        tokens.insert(tokens.end(), more.begin(), more.end());
    };
    size_t piece = 0;  // begins here
    for (size_t i = text.find_first_of(first_bytes); i < text.size(); i = text.find_first_of(first_bytes, i)) {
        size_t name_bytes = 0;
        for (const size_t length : lengths) {
            if (const auto special = special_tokens().find(text.substr(i, length)); special != special_tokens().end()) {
                append(text.substr(piece, i - piece));
                tokens.push_back(special->second);
                name_bytes = special->first.size();
                piece = i + name_bytes;
                break;
            }
        }
        i += std::max(name_bytes, size_t{1});
    }
    append(text.substr(piece));
    return tokens;
}

std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& name) {
    if (name == "byte") {
        return std::make_unique<ByteTokenizer>();
    }
    std::error_code none;
    if (!std::filesystem::exists(name, none)) {
        throw Error({.where = "--tokenizer",
                     .what = "no such tokenizer",
                     .got = "'" + name + "'",
                     .wanted = "byte, a file or a folder"});
    }
    return std::make_unique<BytePairTokenizer>(ReadBytePairVocabulary(name));
}

}  // namespace infini_train::data
