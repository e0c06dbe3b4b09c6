#include "infini_train/src/data/byte_pair_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::data {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;

BytePairVocabulary ReadFile(const std::string& path) {
    const std::string bytes = ReadTokenizerFile(path);
    int32_t magic = 0;
    if (bytes.size() >= sizeof(magic)) {
        std::memcpy(&magic, bytes.data(), sizeof(magic));
    }
    if (magic == kLlmcTokenizerMagic) {
        return ReadLlmcTokenizer(path, bytes);
    }
    const size_t first = bytes.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && bytes[first] == '{') {
        return ReadTokenizerJson(path, bytes);
    }
    const std::string_view line = std::string_view(bytes).substr(0, bytes.find('\n'));
    if (std::count(line.begin(), line.end(), ' ') == 1 && line.find('\0') == std::string_view::npos) {
        return ReadTiktokenRanks(path, bytes);
    }
    throw Error({.where = path,
                 .what = "not a tokenizer that can be read here",
                 .wanted = "llm.c's tokenizer .bin, base64 ranks, or a tokenizer.json of byte-level BPE"});
}

BytePairVocabulary ReadFolder(const std::string& folder) {
    const std::filesystem::path path(folder);
    const auto has = [&](const char* name) {
        std::error_code none;
        return std::filesystem::exists(path / name, none);
    };
    if (has("tokenizer.json")) {
        return ReadFile(path / "tokenizer.json");
    }
    if (has("vocab.json") && has("merges.txt")) {
        return ReadGpt2Folder(folder);
    }
    if (has("tokenizer.model")) {
        return ReadFile(path / "tokenizer.model");
    }
    throw Error({.where = folder,
                 .what = "no tokenizer in this folder",
                 .wanted = "tokenizer.json, vocab.json and merges.txt, or tokenizer.model"});
}

}  // namespace

std::string ReadTokenizerFile(const std::string& path) {
    const ReadOnlyFile file(path);
    if (file.size_bytes() > kMaxFileBytes) {
        throw Error({.where = path,
                     .what = "too large for a tokenizer",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat("at most ", kMaxFileBytes)});
    }
    std::string bytes(file.size_bytes(), '\0');
    file.Read(0, bytes.data(), bytes.size());
    return bytes;
}

BytePairVocabulary ReadBytePairVocabulary(const std::string& path) {
    std::error_code none;
    return std::filesystem::is_directory(path, none) ? ReadFolder(path) : ReadFile(path);
}

}  // namespace infini_train::data
