#include "infini_train/src/checkpoint/llmc_header.h"

#include <bit>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

static_assert(std::endian::native == std::endian::little, "headers are read as they lie in memory");

namespace infini_train::checkpoint {
namespace {

/// What llm.c and its relatives write: a wrong path is the likely mistake, so say what was found.
const char* KindOf(int32_t magic) {
    switch (magic) {
        case kGpt2Magic:
            return "GPT-2 weights";
        case kGpt2DebugStateMagic:
            return "a GPT-2 debug state";
        case 20240328:
            return "a GPT-2 tokenizer";
        case 20240520:
            return "GPT-2 tokens";
        case 20240522:
            return "a multiple-choice evaluation";
        case 20240527:
            return "a trainer state of llm.c";
        case 20240801:
            return "LLaMA-3 tokens, or a tokenizer";
        case kLlama3Magic:
            return "LLaMA-3 weights, or a debug state";
        default:
            return nullptr;
    }
}

int32_t Swapped(int32_t word) {
    return static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(word)));
}

}  // namespace

LlmcHeader::LlmcHeader(const ReadOnlyFile& file) : path_(file.path()) {
    if (file.size_bytes() < kHeaderBytes) {
        throw Error({.where = path_,
                     .what = "the size is less than that of an llm.c header",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = StrCat("more than ", kHeaderBytes)});
    }
    file.Read(0, words_.data(), kHeaderBytes);
}

float LlmcHeader::FloatWord(int index) const {
    return std::bit_cast<float>(word(index));
}

void LlmcHeader::CheckMagic(int32_t wanted) const {
    const int32_t magic = word(0);
    if (magic == wanted) {
        return;
    }
    const std::string wanted_text = StrCat(wanted, ", ", KindOf(wanted));
    if (KindOf(Swapped(magic)) != nullptr) {
        throw Error(
            {.where = path_,
             .what = "wrong byte order: the magic is big-endian, that of " + std::string(KindOf(Swapped(magic))),
             .wanted = "little-endian " + wanted_text});
    }
    if (KindOf(magic) != nullptr) {
        throw Error({.where = path_,
                     .what = "the magic is that of another kind of file",
                     .got = StrCat(magic, ", ", KindOf(magic)),
                     .wanted = wanted_text});
    }
    throw Error(
        {.where = path_, .what = "unknown magic: not an llm.c file", .got = StrCat(magic), .wanted = wanted_text});
}

DataType LlmcHeader::ReadVersion() const {
    switch (word(1)) {
        case kFloat32Version:
            return DataType::kFloat32;
        case kBFloat16Version:
            return DataType::kBFloat16;
        default:
            // llm.c wrote GPT-2 as version 1, 2 and 4 once.
            throw Error({.where = path_,
                         .what = word(0) == kGpt2Magic && (word(1) == 1 || word(1) == 2 || word(1) == 4)
                                     ? "obsolete version of the weights; write them again with a current llm.c"
                                     : "unknown version of the weights",
                         .got = StrCat(word(1)),
                         .wanted = StrCat(kFloat32Version, " (float32) or ", kBFloat16Version, " (bfloat16)")});
    }
}

int64_t LlmcHeader::ReadField(int index, std::string_view name, int64_t min, int64_t max) const {
    const int64_t value = word(index);
    if (value < min || value > max) {
        throw Error({.where = path_,
                     .what = StrCat("header word ", index, ", ", name, ", is out of range"),
                     .got = StrCat(value),
                     .wanted = StrCat(min, " to ", max)});
    }
    return value;
}

void LlmcHeader::CheckUnused(int first) const {
    for (int index = first; index < kNumHeaderWords; ++index) {
        if (word(index) != 0) {
            throw Error({.where = path_,
                         .what = StrCat("header word ", index, " should not be in use; is the file shifted?"),
                         .got = StrCat(word(index)),
                         .wanted = "0"});
        }
    }
}

void CheckFileSize(const ReadOnlyFile& file, std::optional<uint64_t> wanted) {
    if (wanted != file.size_bytes()) {
        const bool is_short = !wanted.has_value() || file.size_bytes() < *wanted;
        throw Error({.where = file.path(),
                     .what = is_short ? "the size is less than the header says: the file is cut short"
                                      : "the size is more than the header says: there are bytes after the last tensor",
                     .got = StrCat(file.size_bytes(), " bytes"),
                     .wanted = wanted.has_value() ? StrCat(*wanted) : "more than 2^64"});
    }
}

}  // namespace infini_train::checkpoint
