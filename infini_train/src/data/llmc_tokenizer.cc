#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/byte_pair_files.h"
#include "infini_train/src/data/pretokenizer.h"

namespace infini_train::data {
namespace {

constexpr size_t kHeaderWords = 256;
constexpr size_t kHeaderBytes = kHeaderWords * sizeof(int32_t);
constexpr int32_t kGpt2VocabSize = 50257;

using Header = std::array<int32_t, kHeaderWords>;

struct Sizes {
    int32_t vocab_size = 0;
    int32_t end_of_text = 0;
};

Sizes ReadHeader(const std::string& path, const std::string& bytes) {
    if (bytes.size() < kHeaderBytes) {
        throw Error({.where = path,
                     .what = "shorter than the header of a tokenizer file",
                     .got = StrCat(bytes.size(), " bytes"),
                     .wanted = StrCat(kHeaderBytes, " and more")});
    }
    Header header;
    std::memcpy(header.data(), bytes.data(), kHeaderBytes);
    const int32_t version = header[1];
    if (version != 1 && version != 2) {
        throw Error(
            {.where = path, .what = "unknown version of a tokenizer file", .got = StrCat(version), .wanted = "1 or 2"});
    }
    const Sizes sizes = {.vocab_size = header[2], .end_of_text = version == 1 ? kGpt2VocabSize - 1 : header[3]};
    // A record has at least two bytes.
    const auto most = static_cast<int64_t>((bytes.size() - kHeaderBytes) / 2);
    if (sizes.vocab_size < 1 || sizes.vocab_size > most) {
        throw Error({.where = path,
                     .what = "the number of tokens does not fit the file",
                     .got = StrCat(sizes.vocab_size),
                     .wanted = StrCat("1 to ", most, " in ", bytes.size(), " bytes")});
    }
    if (version == 1 && sizes.vocab_size != kGpt2VocabSize) {
        throw Error({.where = path,
                     .what = "a tokenizer file of version 1 is GPT-2's",
                     .got = StrCat(sizes.vocab_size, " tokens"),
                     .wanted = StrCat(kGpt2VocabSize)});
    }
    if (sizes.end_of_text < 0 || sizes.end_of_text >= sizes.vocab_size) {
        throw Error({.where = path,
                     .what = "the end of a text is not one of the tokens",
                     .got = StrCat(sizes.end_of_text),
                     .wanted = StrCat("0 to ", sizes.vocab_size - 1)});
    }
    for (size_t word = version == 1 ? 3 : 4; word < header.size(); ++word) {
        if (header[word] != 0) {
            throw Error({.where = path,
                         .what = StrCat("header word ", word, " is in use; is the file shifted?"),
                         .got = StrCat(header[word]),
                         .wanted = "0"});
        }
    }
    return sizes;
}

}  // namespace

BytePairVocabulary ReadLlmcTokenizer(const std::string& path, const std::string& bytes) {
    const Sizes sizes = ReadHeader(path, bytes);
    BytePairVocabulary vocabulary = {.file = path, .whole_words_first = true, .pattern = kGpt2Pattern};
    vocabulary.tokens.reserve(static_cast<size_t>(sizes.vocab_size));
    size_t place = kHeaderBytes;
    for (int32_t id = 0; id < sizes.vocab_size; ++id) {
        const size_t length = place < bytes.size() ? static_cast<unsigned char>(bytes[place]) : 0;
        if (length == 0 || length > bytes.size() - place - 1) {
            throw Error({.where = path,
                         .what = place < bytes.size() && length == 0 ? StrCat("token ", id, " has no bytes")
                                                                     : StrCat("the file ends within token ", id),
                         .got = StrCat(bytes.size(), " bytes")});
        }
        vocabulary.tokens.push_back(bytes.substr(place + 1, length));
        place += 1 + length;
    }
    if (place != bytes.size()) {
        throw Error({.where = path,
                     .what = "bytes after the last token",
                     .got = StrCat(bytes.size(), " bytes"),
                     .wanted = StrCat(place)});
    }
    vocabulary.tokens[static_cast<size_t>(sizes.end_of_text)].clear();
    vocabulary.special_tokens = {{"<|endoftext|>", sizes.end_of_text}};
    vocabulary.merges = MergesOfRanks(vocabulary.tokens);
    return vocabulary;
}

}  // namespace infini_train::data
