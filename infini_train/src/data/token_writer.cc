#include "infini_train/include/data/token_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/token_format.h"

namespace infini_train::data {
namespace {

constexpr size_t kChunk = size_t{1} << 20;  // tokens narrowed and written at once

}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& path, TokenKind kind)
    : path_(path), temporary_path_(StrCat(path, ".tmp.", getpid())), kind_(kind) {
    CHECK(kind != TokenKind::kText) << "a token file of ids, not text";
    if (IsTextPath(path)) {
        throw Error({.where = path,
                     .what = "cannot write tokens there: a file whose name ends in .txt is read as text",
                     .wanted = "another ending, such as .bin"});
    }
    struct stat status = {};
    // The move at the end would put a file in the place of a folder's or a device's name.
    if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        throw Error({.where = path, .what = "cannot write: there is something that is not a regular file"});
    }
    file_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) {
        throw Error({.where = path_, .what = StrCat("cannot make ", temporary_path_, ": ", std::strerror(errno))});
    }
}

TokenFileWriter::~TokenFileWriter() {
    if (file_ >= 0) {
        close(file_);
        unlink(temporary_path_.c_str());
    }
}

void TokenFileWriter::Append(std::span<const int32_t> tokens) {
    CHECK(!is_finished_) << path_ << ": finished already";
    if (static_cast<int64_t>(tokens.size()) > kMaxTokens - num_tokens_) {
        throw Error({.where = path_,
                     .what = "too many tokens for one file",
                     .got = StrCat("more than ", num_tokens_),
                     .wanted = StrCat("at most ", kMaxTokens)});
    }
    const bool is_gpt2 = kind_ == TokenKind::kGpt2;
    const int32_t largest = is_gpt2 ? std::numeric_limits<uint16_t>::max() : std::numeric_limits<int32_t>::max();
    const auto outside =
        std::find_if(tokens.begin(), tokens.end(), [largest](int32_t id) { return id < 0 || id > largest; });
    if (outside != tokens.end()) {
        throw Error({.where = path_,
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
            Write(narrow.data(), narrow.size() * sizeof(uint16_t), size_bytes());
        } else {
            Write(chunk.data(), chunk.size_bytes(), size_bytes());
        }
        num_tokens_ += static_cast<int64_t>(chunk.size());
    }
}

void TokenFileWriter::Finish() {
    if (num_tokens_ == 0) {
        throw Error({.where = path_, .what = "no tokens to write"});
    }
    TokenHeader header{};
    header[0] = kind_ == TokenKind::kGpt2 ? kGpt2Magic : kLlama3Magic;
    header[1] = kind_ == TokenKind::kGpt2 ? kGpt2Version : kLlama3Version;
    header[2] = static_cast<int32_t>(num_tokens_);
    Write(header.data(), sizeof(header), 0);
    // Without it the new name may reach the disk before the data does.
    if (fsync(file_) != 0) {
        ThrowSystemError("cannot write");
    }
    is_finished_ = true;
}

void TokenFileWriter::Commit() {
    if (!is_finished_) {
        Finish();
    }
    if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
        ThrowSystemError("cannot move the finished file into place");
    }
    close(file_);
    file_ = -1;
}

int64_t TokenFileWriter::size_bytes() const {
    return static_cast<int64_t>(kHeaderBytes) + num_tokens_ * static_cast<int64_t>(TokenBytes(kind_));
}

void TokenFileWriter::Write(const void* bytes, size_t size_bytes, int64_t offset) {
    const char* next = static_cast<const char*>(bytes);
    while (size_bytes > 0) {
        const ssize_t written = pwrite(file_, next, size_bytes, offset);
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            ThrowSystemError("cannot write");
        }
        next += written;
        size_bytes -= static_cast<size_t>(written);
        offset += written;
    }
}

void TokenFileWriter::ThrowSystemError(const std::string& what) const {
    throw Error({.where = path_, .what = StrCat(what, ": ", std::strerror(errno)), .kind = Error::Kind::kRuntime});
}

void WriteTokenFile(const std::string& path, std::span<const int32_t> tokens, TokenKind kind) {
    TokenFileWriter writer(path, kind);
    writer.Append(tokens);
    writer.Commit();
}

}  // namespace infini_train::data
