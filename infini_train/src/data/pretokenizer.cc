#include "infini_train/src/data/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/data/utf8.h"

namespace infini_train::data {

// Possessive (++) where no shorter match can lead to another cut: nothing to go back to, nothing to remember.
const char* const kGpt2Pattern = R"('(?:s|t|re|ve|m|ll|d)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s+(?!\S)|\s++)";
const char* const kLlama3Pattern =
    R"('(?i:s|t|re|ve|m|ll|d)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s++)";

namespace {

// The most that matching one word may take. Ours take a step or two; the pattern of a file can be a hostile one.
constexpr uint32_t kMaxSteps = 10000000;
constexpr uint32_t kMaxHeapKibibytes = 65536;
constexpr size_t kMaxCharacterBytes = 4;  // of UTF-8

std::string MessageOf(int error) {
    std::array<PCRE2_UCHAR, 256> text = {};
    pcre2_get_error_message(error, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

/// PCRE2's \s has U+180E, which Unicode took out of the white space and other engines do not have.
std::string WithUnicodeBlanks(const std::string& pattern) {
    std::string result;
    for (size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '\\' || i + 1 == pattern.size()) {
            result += pattern[i];
            continue;
        }
        ++i;
        if (pattern[i] == 's') {
            result += R"(\p{White_Space})";
        } else if (pattern[i] == 'S') {
            result += R"(\P{White_Space})";
        } else {
            result += {'\\', pattern[i]};
        }
    }
    return result;
}

PCRE2_SPTR Pcre2Text(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

Pretokenizer::Pretokenizer(const std::string& file, const std::string& pattern) : file_(file) {
    const std::string text = WithUnicodeBlanks(pattern);
    int error = 0;
    PCRE2_SIZE place = 0;
    // \C could cut a character, and $ must not match before the line end that a text ends with.
    constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY;
    pcre2_code* const code = pcre2_compile(Pcre2Text(text), text.size(), kOptions, &error, &place, nullptr);
    if (code == nullptr) {
        throw Error({.where = file_,
                     .what = StrCat("the pattern of the words is no regular expression of PCRE2: ", MessageOf(error)),
                     .got = text});
    }
    code_.reset(code, pcre2_code_free);
    // Where the system forbids new machine code this fails, and the pattern is interpreted.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    limits_.reset(pcre2_match_context_create(nullptr), pcre2_match_context_free);
    CHECK_NOTNULL(limits_.get());
    pcre2_set_match_limit(limits_.get(), kMaxSteps);
    pcre2_set_heap_limit(limits_.get(), kMaxHeapKibibytes);
}

void Pretokenizer::ForEachWord(std::string_view text, const std::function<void(std::string_view)>& use) const {
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                    pcre2_match_data_free);
    CHECK_NOTNULL(match.get());
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match.get());
    while (!text.empty()) {
        const std::string_view part = text.substr(0, Utf8PrefixBytes(text));
        size_t place = 0;
        while (place < part.size()) {
            const int result = pcre2_match(code_.get(), Pcre2Text(part), part.size(), place,
                                           PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), limits_.get());
            if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
                throw Error({.where = file_,
                             .what = StrCat("the pattern of the words fails on a text: ", MessageOf(result)),
                             .got = StrCat(part.size() - place, " bytes of text")});
            }
            const bool is_match = result >= 0 && bounds[1] > std::max(place, bounds[0]);  // \K can make it empty
            const size_t begin = is_match ? bounds[0] : part.size();
            const size_t end = is_match ? bounds[1] : part.size();
            if (begin > place) {
                use(part.substr(place, begin - place));
            }
            if (end > begin) {
                use(part.substr(begin, end - begin));
            }
            place = end;
        }
        text.remove_prefix(part.size());
        size_t num_bad = 0;
        while (num_bad < text.size() && Utf8PrefixBytes(text.substr(num_bad, kMaxCharacterBytes)) == 0) {
            ++num_bad;
        }
        if (num_bad > 0) {
            use(text.substr(0, num_bad));
        }
        text.remove_prefix(num_bad);
    }
}

}  // namespace infini_train::data
