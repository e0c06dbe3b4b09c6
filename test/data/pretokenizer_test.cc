#include "infini_train/src/data/pretokenizer.h"

#include <chrono>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/src/data/utf8.h"
#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using test::ExpectError;
using Words = std::vector<std::string>;

Words Cut(const char* pattern, std::string_view text) {
    Words words;
    Pretokenizer("test", pattern).ForEachWord(text, [&](std::string_view word) { words.emplace_back(word); });
    return words;
}

TEST(Pretokenizer, CutsAsGpt2Does) {
    EXPECT_EQ(Cut(kGpt2Pattern, "Hello world,  I'm 12345!"),
              (Words{"Hello", " world", ",", " ", " I", "'m", " 12345", "!"}));
    EXPECT_EQ(Cut(kGpt2Pattern, "we'll WE'LL 'tis"), (Words{"we", "'ll", " WE", "'", "LL", " '", "tis"}));
    EXPECT_EQ(Cut(kGpt2Pattern, "a \r\n\n b\t"), (Words{"a", " \r\n\n", " b", "\t"}));
    EXPECT_EQ(Cut(kGpt2Pattern, "a   "), (Words{"a", "   "}));
    EXPECT_EQ(Cut(kGpt2Pattern, "Ж流 ½²"), (Words{"Ж流", " ½²"}));
}

TEST(Pretokenizer, CutsAsLlama3Does) {
    EXPECT_EQ(Cut(kLlama3Pattern, "Hello world,  I'm 12345!\n\nx"),
              (Words{"Hello", " world", ",", " ", " I", "'m", " ", "123", "45", "!\n\n", "x"}));
    EXPECT_EQ(Cut(kLlama3Pattern, "we'll WE'LL (a"), (Words{"we", "'ll", " WE", "'LL", " (", "a"}));
    EXPECT_EQ(Cut(kLlama3Pattern, "(a \r\n\n b\t"), (Words{"(a", " \r\n\n", " b", "\t"}));
    EXPECT_EQ(Cut(kLlama3Pattern, "a \n  "), (Words{"a", " \n", "  "}));
    EXPECT_EQ(Cut(kLlama3Pattern, "it'Sx it'sx"), (Words{"it", "'S", "x", " it", "'s", "x"}));
    EXPECT_EQ(Cut(kLlama3Pattern, "b'\u017fx"), (Words{"b", "'\u017f", "x"}));  // long s: a small letter of S
}

TEST(Pretokenizer, KnowsTheBlanksOfUnicode) {
    for (const char* blank : {"\u0085", "\u00a0", "\u1680", "\u2003", "\u2028", "\u3000", "\v"}) {
        EXPECT_EQ(Cut(kGpt2Pattern, std::string("a!") + blank + "!"), (Words{"a", "!", blank, "!"}));
    }
    for (const char* other : {"\u180e", "\u200b", "\ufeff", "\x1c"}) {
        const std::string run = std::string("!") + other + "!";
        EXPECT_EQ(Cut(kGpt2Pattern, "a" + run), (Words{"a", run}));
    }
}

TEST(Pretokenizer, MakesAWordOfBytesThatAreNotUtf8) {
    EXPECT_EQ(Cut(kGpt2Pattern,
                  "ab\xff\xfe"
                  "cd"),
              (Words{"ab", "\xff\xfe", "cd"}));
    EXPECT_EQ(Cut(kGpt2Pattern, "\x80"), (Words{"\x80"}));
    EXPECT_EQ(Cut(kGpt2Pattern, "流\xe6\xb5"), (Words{"流", "\xe6\xb5"}));                // cut in a character
    EXPECT_EQ(Cut(kGpt2Pattern, "a  \xc0\xaf b"), (Words{"a", "  ", "\xc0\xaf", " b"}));  // overlong
    EXPECT_EQ(Cut(kGpt2Pattern, "\xed\xa0\x80\xf4\x90\x80\x80"), (Words{"\xed\xa0\x80\xf4\x90\x80\x80"}));
    EXPECT_EQ(Cut(kGpt2Pattern, std::string_view("a\0b", 3)), (Words{"a", std::string(1, '\0'), "b"}));
    EXPECT_TRUE(Cut(kGpt2Pattern, "").empty());
}

TEST(Pretokenizer, MakesAWordOfWhatIsBetweenMatches) {
    EXPECT_EQ(Cut("[0-9]+", "ab12 3cd"), (Words{"ab", "12", " ", "3", "cd"}));
    EXPECT_EQ(Cut("x*", "abxxc"), (Words{"ab", "xx", "c"}));
    EXPECT_EQ(Cut("a\\Kb|a\\K", "aabaa"), (Words{"aa", "b", "aa"}));
    EXPECT_EQ(Cut("a$", "a\na"), (Words{"a\n", "a"}));
    EXPECT_EQ(Cut("a$", "a\n"), (Words{"a\n"}));
    EXPECT_EQ(Cut("\\w+", "!流é!"), (Words{"!", "流é", "!"}));
    EXPECT_EQ(Cut(R"([\S]\\s)", R"(a\sb)"), (Words{R"(a\s)", "b"}));  // a backslash and an s, not a blank
}

TEST(Pretokenizer, RefusesWhatIsNoPattern) {
    for (const char* pattern : {"(", "[a", "\\p{Nonsense}", "*", "\\C", "\xff", "a\\"}) {
        ExpectError([&] { Pretokenizer("tokenizer.json", pattern); }, {"tokenizer.json", "no regular expression"});
    }
}

TEST(Pretokenizer, EndsAPatternThatGoesBackForEver) {
    const auto start = std::chrono::steady_clock::now();
    ExpectError([] { Cut("(a+)+$", std::string(60, 'a') + "!"); }, {"test", "fails on a text", "match limit"});
    ExpectError([] { Cut("(a|(?1)b)*c", std::string(1000000, 'a')); }, {"test", "fails on a text"});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));  // hundredths of one
}

TEST(Pretokenizer, CutsAMillionOfOneCharacterAtOnce) {
    for (const char* pattern : {kGpt2Pattern, kLlama3Pattern}) {
        for (const char* character :
             {"^", " ", "\n", "a", "1", "\r\n", "\u3000", "流", "\u0301", "\xff", "' ", "\n "}) {
            std::string text;
            while (text.size() < 1000000) {
                text += character;
            }
            const auto start = std::chrono::steady_clock::now();
            size_t size_bytes = 0;
            Pretokenizer("test", pattern).ForEachWord(text, [&](std::string_view word) { size_bytes += word.size(); });
            EXPECT_EQ(size_bytes, text.size());
            EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2)) << character;
        }
    }
}

TEST(Utf8PrefixBytes, EndsBeforeTheFirstBadByte) {
    EXPECT_EQ(Utf8PrefixBytes(""), 0u);
    EXPECT_EQ(Utf8PrefixBytes("abcdefghijklm"), 13u);
    EXPECT_EQ(Utf8PrefixBytes("é流👍\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80"), 19u);
    // Too long, a surrogate, above the last, no first byte, cut short.
    for (const char* bad :
         {"\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
          "\xf5\x80\x80\x80", "\x80", "\xff", "\xc3", "\xe6\xb5", "\xf0\x9f\x91", "\xc3(", "\xe6\xb5("}) {
        EXPECT_EQ(Utf8PrefixBytes(bad), 0u) << bad;
        EXPECT_EQ(Utf8PrefixBytes("abcdefgh1" + std::string(bad) + "abcdefgh"), 9u) << bad;
    }
}

}  // namespace
}  // namespace infini_train::data
