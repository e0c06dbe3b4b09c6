#include "infini_train/include/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "glog/logging.h"

#include "infini_train/include/common/checked_math.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/token_format.h"

static_assert(std::endian::native == std::endian::little, "token files are read as they lie in memory");

namespace infini_train::data {
namespace {

constexpr int64_t kScanBlock = int64_t{1} << 16;  // tokens whose maximum is taken before looking for the culprit

/// What else llm.c and its relatives write: a wrong path is the likely mistake, so say what was found.
const char* OtherFile(int32_t magic) {
    switch (magic) {
        case 20240326:
            return "a GPT-2 weights file";
        case 20240327:
            return "a GPT-2 debug state";
        case 20240328:
            return "a GPT-2 tokenizer file";
        case 20240522:
            return "a multiple-choice evaluation file";
        case 20240527:
            return "a trainer state of llm.c";
        case 20240803:
            return "a LLaMA-3 weights file or debug state";
        default:
            return nullptr;
    }
}

bool IsTokenMagic(int32_t magic) {
    return magic == kGpt2Magic || magic == kLlama3Magic;
}

int32_t Swapped(int32_t word) {
    return static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(word)));
}

TokenKind KindOf(const std::string& path, const TokenHeader& header) {
    const int32_t magic = header[0];
    const int32_t version = header[1];
    if (!IsTokenMagic(magic)) {
        if (const char* other = OtherFile(magic); other != nullptr) {
            throw Error({.where = path, .what = StrCat("this is ", other), .wanted = "a token file"});
        }
        if (IsTokenMagic(Swapped(magic)) || OtherFile(Swapped(magic)) != nullptr) {
            throw Error({.where = path, .what = "wrong byte order", .got = "big-endian", .wanted = "little-endian"});
        }
        throw Error({.where = path,
                     .what = "not a token file: unknown magic",
                     .got = StrCat(magic),
                     .wanted = StrCat(kGpt2Magic, " (GPT-2 tokens) or ", kLlama3Magic,
                                      " (LLaMA-3 tokens); the name of a text file ends in .txt")});
    }
    if (magic == kLlama3Magic && (version == 1 || version == 2)) {
        throw Error({.where = path, .what = "this is a LLaMA-3 tokenizer file", .wanted = "a token file"});
    }
    const int32_t wanted = magic == kGpt2Magic ? kGpt2Version : kLlama3Version;
    if (version != wanted) {
        throw Error({.where = path,
                     .what = "unknown version of a token file",
                     .got = StrCat(version),
                     .wanted = StrCat(wanted)});
    }
    return magic == kGpt2Magic ? TokenKind::kGpt2 : TokenKind::kLlama3;
}

/// Calls f with a value of the type that a file of this kind stores its ids in.
template <typename F>
void DispatchIds(TokenKind kind, F&& f) {
    switch (kind) {
        case TokenKind::kGpt2:
            f(uint16_t{});
            return;
        case TokenKind::kLlama3:
            f(uint32_t{});
            return;
        case TokenKind::kText:
            f(uint8_t{});
            return;
    }
}

template <typename Id>
std::optional<int64_t> FirstOutside(const Id* ids, int64_t count, int64_t vocab_size) {
    if (vocab_size > std::numeric_limits<Id>::max()) {
        return std::nullopt;
    }
    const auto limit = static_cast<Id>(vocab_size);
    for (int64_t begin = 0; begin < count; begin += kScanBlock) {
        const int64_t end = std::min(begin + kScanBlock, count);
        Id largest = 0;
#pragma omp simd reduction(max : largest)
        for (int64_t i = begin; i < end; ++i) {
            largest = ids[i] > largest ? ids[i] : largest;
        }
        if (largest >= limit) {
            return std::find_if(ids + begin, ids + end, [limit](Id id) { return id >= limit; }) - ids;
        }
    }
    return std::nullopt;
}

[[noreturn]] void ThrowOpenError(const std::string& path, const std::string& what) {
    throw Error({.where = path, .what = StrCat(what, ": ", std::strerror(errno))});
}

/// The bytes of a regular file that is not empty; unmapped with the last copy.
std::shared_ptr<const std::byte> MapFile(const std::string& path, uint64_t* size_bytes) {
    // O_NONBLOCK: a pipe that nobody writes to must not make us wait; it is refused below.
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        ThrowOpenError(path, "cannot open");
    }
    const std::shared_ptr<void> closer(nullptr, [file](void*) { close(file); });
    struct stat status = {};
    if (fstat(file, &status) != 0) {
        ThrowOpenError(path, "cannot read its size");
    }
    if (!S_ISREG(status.st_mode)) {
        throw Error({.where = path,
                     .what = S_ISDIR(status.st_mode) ? "this is a folder" : "not a regular file",
                     .wanted = "a token file"});
    }
    if (status.st_size == 0) {
        throw Error({.where = path, .what = "the file is empty"});
    }
    *size_bytes = static_cast<uint64_t>(status.st_size);
    const size_t length = *size_bytes;
    void* mapping = mmap(nullptr, length, PROT_READ, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) {
        ThrowOpenError(path, "cannot map");
    }
    return {static_cast<const std::byte*>(mapping),
            [length](const std::byte* bytes) { munmap(const_cast<std::byte*>(bytes), length); }};
}

}  // namespace

size_t TokenBytes(TokenKind kind) {
    switch (kind) {
        case TokenKind::kGpt2:
            return sizeof(uint16_t);
        case TokenKind::kLlama3:
            return sizeof(uint32_t);
        case TokenKind::kText:
            return sizeof(uint8_t);
    }
    LOG(FATAL) << "unknown kind of tokens " << static_cast<int>(kind);
    return 0;
}

std::string_view Name(TokenKind kind) {
    switch (kind) {
        case TokenKind::kGpt2:
            return "GPT-2 tokens";
        case TokenKind::kLlama3:
            return "LLaMA-3 tokens";
        case TokenKind::kText:
            return "text";
    }
    LOG(FATAL) << "unknown kind of tokens " << static_cast<int>(kind);
    return "";
}

TokenFile::TokenFile(const std::string& path) : path_(path) {
    uint64_t size_bytes = 0;
    mapping_ = MapFile(path, &size_bytes);
    if (IsTextPath(path)) {
        kind_ = TokenKind::kText;
        num_tokens_ = static_cast<int64_t>(size_bytes);
        tokens_ = mapping_.get();
        return;
    }
    ReadHeader(mapping_.get(), size_bytes);
    tokens_ = mapping_.get() + kHeaderBytes;
}

void TokenFile::ReadHeader(const std::byte* file, uint64_t size_bytes) {
    if (size_bytes < kHeaderBytes) {
        throw Error({.where = path_,
                     .what = "not a token file: shorter than the header of one",
                     .got = StrCat(size_bytes, " bytes"),
                     .wanted = StrCat(kHeaderBytes, " and more; the name of a text file ends in .txt")});
    }
    TokenHeader header;
    std::memcpy(header.data(), file, kHeaderBytes);
    kind_ = KindOf(path_, header);
    num_tokens_ = header[2];
    if (num_tokens_ <= 0) {
        throw Error({.where = path_,
                     .what = "the header gives no number of tokens",
                     .got = StrCat(num_tokens_),
                     .wanted = StrCat("1 to ", kMaxTokens)});
    }
    for (size_t word = 3; word < header.size(); ++word) {
        if (header[word] != 0) {
            throw Error({.where = path_,
                         .what = StrCat("header word ", word, " is in use; is the file shifted?"),
                         .got = StrCat(header[word]),
                         .wanted = "0"});
        }
    }
    const std::optional<uint64_t> data_bytes = CheckedMultiply(static_cast<uint64_t>(num_tokens_), TokenBytes(kind_));
    const std::optional<uint64_t> wanted =
        data_bytes.has_value() ? CheckedAdd(*data_bytes, kHeaderBytes) : std::nullopt;
    if (wanted != size_bytes) {
        throw Error({.where = path_,
                     .what = !wanted.has_value() || size_bytes < *wanted ? "the file is cut short"
                                                                         : "bytes after the last token",
                     .got = StrCat(size_bytes, " bytes"),
                     .wanted = StrCat(wanted.value_or(0), " for ", num_tokens_, " tokens of ", TokenBytes(kind_))});
    }
}

void TokenFile::CheckVocab(int64_t vocab_size) const {
    CHECK_GT(vocab_size, 0) << path_;
    DispatchIds(kind_, [&](auto zero) {
        const auto* ids = reinterpret_cast<const decltype(zero)*>(tokens_);
        if (const std::optional<int64_t> index = FirstOutside(ids, num_tokens_, vocab_size); index.has_value()) {
            throw Error({.where = path_,
                         .what = StrCat("token ", *index, " is not in the model's vocabulary"),
                         .got = StrCat("id ", uint64_t{ids[*index]}),
                         .wanted = StrCat("an id below ", vocab_size)});
        }
    });
}

void TokenFile::Read(int64_t first, int64_t count, int32_t* tokens) const {
    CHECK(0 <= first && 0 <= count && count <= num_tokens_ - first)
        << path_ << ": tokens from " << first << ", " << count << " of them, of " << num_tokens_;
    DispatchIds(kind_, [&](auto zero) {
        const auto* ids = reinterpret_cast<const decltype(zero)*>(tokens_) + first;
        std::transform(ids, ids + count, tokens, [](auto id) { return static_cast<int32_t>(id); });
    });
}

}  // namespace infini_train::data
