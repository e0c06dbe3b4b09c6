#include "infini_train/include/data/token_writer.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/token_format.h"

namespace infini_train::data {
namespace {

constexpr size_t kChunk = size_t{1} << 20;  // tokens narrowed and written at once

/// Refused before a file is made.
const std::string& CheckedPath(const std::string& path) {
    if (IsTextPath(path)) {
        throw Error({.where = path,
                     .what = "cannot write tokens there: a file whose name ends in .txt is read as text",
                     .wanted = "another ending, such as .bin"});
    }
    return path;
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& path, TokenKind kind) : file_(CheckedPath(path)), kind_(kind) {
    CHECK(kind != TokenKind::kText) << "a token file of ids, not text";
    const TokenHeader no_tokens_yet = {};
    file_.Append(no_tokens_yet.data(), sizeof(no_tokens_yet));
}

void TokenFileWriter::Append(std::span<const int32_t> tokens) {
    CHECK(!is_finished_) << path() << ": finished already";
    if (static_cast<int64_t>(tokens.size()) > kMaxTokens - num_tokens_) {
        throw Error({.where = path(),
                     .what = "too many tokens for one file",
                     .got = StrCat("more than ", num_tokens_),
                     .wanted = StrCat("at most ", kMaxTokens)});
    }
    const bool is_gpt2 = kind_ == TokenKind::kGpt2;
    const int32_t largest = is_gpt2 ? std::numeric_limits<uint16_t>::max() : std::numeric_limits<int32_t>::max();
    const auto outside =
        std::find_if(tokens.begin(), tokens.end(), [largest](int32_t id) { return id < 0 || id > largest; });
    if (outside != tokens.end()) {
        throw Error({.where = path(),
                     .what = StrCat("token ", num_tokens_ + (outside - tokens.begin()), " does not fit a file of ",
                                    Name(kind_)),
                     .got = StrCat("id ", *outside),
                     .wanted = StrCat("0 to ", largest)});
    }
    std::vector<uint16_t> narrow;
    for (size_t begin = 0; begin < tokens.size(); begin += kChunk) {
        const std::span<const int32_t> chunk = tokens.subspan(begin, std::min(kChunk, tokens.size() - begin));
        if (is_gpt2) {
            narrow.resize(chunk.size());
            std::transform(chunk.begin(), chunk.end(), narrow.begin(),
                           [](int32_t id) { return static_cast<uint16_t>(id); });
            file_.Append(narrow.data(), narrow.size() * sizeof(uint16_t));
        } else {
            file_.Append(chunk.data(), chunk.size_bytes());
        }
        num_tokens_ += static_cast<int64_t>(chunk.size());
    }
}

void TokenFileWriter::Finish() {
    if (num_tokens_ == 0) {
        throw Error({.where = path(), .what = "no tokens to write"});
    }
    TokenHeader header{};
    header[0] = kind_ == TokenKind::kGpt2 ? kGpt2Magic : kLlama3Magic;
    header[1] = kind_ == TokenKind::kGpt2 ? kGpt2Version : kLlama3Version;
    header[2] = static_cast<int32_t>(num_tokens_);
    file_.Overwrite(0, header.data(), sizeof(header));
    file_.Finish();
    is_finished_ = true;
}

void TokenFileWriter::Commit() {
    if (!is_finished_) {
        Finish();
    }
    file_.Commit();
}

int64_t TokenFileWriter::size_bytes() const {
    return static_cast<int64_t>(kHeaderBytes) + num_tokens_ * static_cast<int64_t>(TokenBytes(kind_));
}

void WriteTokenFile(const std::string& path, std::span<const int32_t> tokens, TokenKind kind) {
    TokenFileWriter writer(path, kind);
    writer.Append(tokens);
    writer.Commit();
}

}  // namespace infini_train::data
