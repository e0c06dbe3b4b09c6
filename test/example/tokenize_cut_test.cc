#include "example/tools/tokenize_cut.h"

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/src/data/pretokenizer.h"

namespace infini_train {
namespace {

using Words = std::vector<std::string>;

void AppendWords(const data::Pretokenizer& pretokenizer, std::string_view text, Words& words) {
    pretokenizer.ForEachWord(text, [&](std::string_view word) { words.emplace_back(word); });
}

/// What is likely to meet in a text, and what is unlikely.
const std::vector<std::string> kParts = {"a",
                                         "Z",
                                         "s",
                                         "ll",
                                         "7",
                                         "12",
                                         "'",
                                         ".",
                                         "(",
                                         "/",
                                         " ",
                                         " ",
                                         "  ",
                                         "\t",
                                         "\n",
                                         "\n",
                                         "\r",
                                         "\r\n",
                                         "\v",
                                         "\f",
                                         "\xc3\xa9",
                                         "\xc2\xa0",
                                         "\xc2\x85",
                                         "\xd0\xb6",
                                         "\xd7\x90",
                                         "\xcc\x81",
                                         "\xe0\xb8\x81",
                                         "\xe1\x9a\x80",
                                         "\xe1\xa0\x8e",
                                         "\xe2\x80\xa8",
                                         "\xe2\x80\x83",
                                         "\xe3\x80\x80",
                                         "\xe3\x80\x82",
                                         "\xe3\x81\x82",
                                         "\xe4\xb8\xad",
                                         "\xe6\x96\x87",
                                         "\xe8\xbf\xbf",
                                         "\xed\x95\x9c",
                                         "\xef\xbc\x8c",
                                         "\xef\xbb\xbf",
                                         "\xf0\x9f\x98\x80",
                                         std::string(1, '\0'),
                                         "\x7f",
                                         "\xff",
                                         "\xc3",
                                         "\xe4\xb8",
                                         "\x80",
                                         "\xed\xa0\x80"};

/// For texts at random, cuts them at each place that IsTextCut allows. Returns how many those are.
int64_t ExpectTheSameWords(const std::string& pattern) {
    const data::Pretokenizer pretokenizer("pattern", pattern);
    std::mt19937 random(1);
    int64_t num_cuts = 0;
    for (int i = 0; i < 100000; ++i) {
        std::string text;
        const size_t num_parts = 1 + random() % 10;
        for (size_t part = 0; part < num_parts; ++part) {
            text += kParts[random() % kParts.size()];
        }
        Words whole;
        AppendWords(pretokenizer, text, whole);
        for (size_t place = 0; place <= text.size(); ++place) {
            if (IsTextCut(text, place)) {
                Words parts;
                AppendWords(pretokenizer, std::string_view(text).substr(0, place), parts);
                AppendWords(pretokenizer, std::string_view(text).substr(place), parts);
                if (parts != whole) {
                    ADD_FAILURE() << "cut at byte " << place << " of '" << text << "'";
                    return num_cuts;
                }
                ++num_cuts;
            }
        }
    }
    return num_cuts;
}

TEST(TextCut, KeepsTheWordsOfEveryPatternWeRead) {
    EXPECT_GT(ExpectTheSameWords(data::kGpt2Pattern), 20000);
    EXPECT_GT(ExpectTheSameWords(data::kLlama3Pattern), 20000);
    // What tokenizer.json of other models has: single digits, letters by case with contractions after them, and line
    // ends with slashes.
    EXPECT_GT(ExpectTheSameWords(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                                 R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
              20000);
    EXPECT_GT(ExpectTheSameWords(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                                 R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)"
                                 R"(\s*[\r\n]+|\s+(?!\S)|\s+)"),
              20000);
}

TEST(TextCut, IsFoundInManyScripts) {
    const auto cut = [](std::string_view before, std::string_view after) {
        return IsTextCut(std::string(before) + std::string(after), before.size());
    };
    EXPECT_TRUE(cut("word", " word"));
    EXPECT_TRUE(cut("end.", " Next"));
    EXPECT_TRUE(cut("word", "\tword"));
    EXPECT_TRUE(cut("line", "\n\nline"));
    EXPECT_TRUE(cut("line", "\r\nline"));
    EXPECT_TRUE(cut("1984", "\n"));
    EXPECT_TRUE(cut("\xd0\xb6", " \xd0\xb6"));          // Cyrillic
    EXPECT_TRUE(cut("\xed\x95\x9c", " \xed\x95\x9c"));  // Hangul
    EXPECT_TRUE(cut("\xe6\x96\x87", "\n"));             // Chinese
    EXPECT_FALSE(cut("end.", "\n"));                    // one word in LLaMA-3's pattern
    EXPECT_FALSE(cut("\xe3\x80\x82", "\n"));            // a full stop too
    EXPECT_FALSE(cut("a ", " b"));                      // the last blank of a run goes with what follows
    EXPECT_FALSE(cut("\xc2\xa0", " b"));                // as this one, which does not break
    EXPECT_FALSE(cut("\xe3\x80\x80", " b"));            // or is wide
    EXPECT_FALSE(cut("wo", "rd"));
    EXPECT_FALSE(cut("", " b"));
    EXPECT_FALSE(cut("b", ""));
}

}  // namespace
}  // namespace infini_train
