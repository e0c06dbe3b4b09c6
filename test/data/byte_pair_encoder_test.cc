#include "infini_train/src/data/byte_pair_encoder.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

#include "test/data/byte_pair_test_vocabulary.h"
#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using test::ExpectError;

/// The 256 bytes, id = byte, and these tokens after them, by rank.
BytePairVocabulary BytesAnd(const std::vector<std::string>& tokens) {
    BytePairVocabulary vocabulary = {.file = "test"};
    for (int byte = 0; byte < 256; ++byte) {
        vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
    }
    vocabulary.tokens.insert(vocabulary.tokens.end(), tokens.begin(), tokens.end());
    vocabulary.merges = MergesOfRanks(vocabulary.tokens);
    return vocabulary;
}

std::vector<int32_t> Encode(const BytePairEncoder& encoder, std::string_view word) {
    BytePairEncoder::Scratch scratch;
    std::vector<int32_t> tokens;
    encoder.Encode(word, &scratch, &tokens);
    return tokens;
}

TEST(BytePairEncoder, MergesTheLowestRankFirst) {
    const BytePairEncoder encoder(BytesAnd({"bc", "ab", "abc"}));
    EXPECT_EQ(Encode(encoder, "abc"), (std::vector<int32_t>{258}));
    EXPECT_EQ(Encode(encoder, "abbc"), (std::vector<int32_t>{257, 256}));
    EXPECT_EQ(Encode(BytePairEncoder(BytesAnd({"bc", "ab"})), "abc"), (std::vector<int32_t>{'a', 256}));
}

TEST(BytePairEncoder, MergesTheLeftmostOfEqualRanks) {
    const BytePairEncoder encoder(BytesAnd({"aa", "aaa"}));
    EXPECT_EQ(Encode(encoder, "aaa"), (std::vector<int32_t>{257}));
    EXPECT_EQ(Encode(encoder, "aaaaa"), (std::vector<int32_t>{256, 257}));
}

TEST(BytePairEncoder, IsTheSimplestEncoderOnRandomWords) {
    std::mt19937 random(5);
    for (int round = 0; round < 20; ++round) {
        // Few letters, so that merges overlap and compete.
        std::vector<std::string> tokens = {"a", "b", "c"};
        std::map<std::string, int32_t> ranks;
        std::vector<std::string> merged;
        for (int i = 0; i < 30; ++i) {
            const std::string token = tokens[random() % tokens.size()] + tokens[random() % tokens.size()];
            if (token.size() < 12 && ranks.emplace(token, 256 + static_cast<int32_t>(merged.size())).second) {
                tokens.push_back(token);
                merged.push_back(token);
            }
        }
        const BytePairEncoder encoder(BytesAnd(merged));
        for (int i = 0; i < 200; ++i) {
            std::string word;
            for (size_t size = 1 + random() % 40; word.size() < size;) {
                word.push_back("abcd"[random() % 4]);
            }
            std::vector<int32_t> wanted;
            for (const std::string& part : test::MergeByRank(word, ranks)) {
                wanted.push_back(part.size() == 1 ? part[0] : ranks.at(part));
            }
            ASSERT_EQ(Encode(encoder, word), wanted) << word;
        }
    }
}

TEST(BytePairEncoder, UsesMergesRanksAndNotIds) {
    BytePairVocabulary vocabulary = BytesAnd({"ab", "bc"});
    vocabulary.merges = {{.left = 'b', .right = 'c', .token = 257, .rank = 0},
                         {.left = 'a', .right = 'b', .token = 256, .rank = 1}};
    EXPECT_EQ(Encode(BytePairEncoder(vocabulary), "abc"), (std::vector<int32_t>{'a', 257}));
}

TEST(BytePairEncoder, TakesAWordThatNoMergesMakeOnlyWhenToldTo) {
    BytePairVocabulary vocabulary = BytesAnd({"ab", "bc", "abcd"});  // a-bc-d and ab-c-d have no merge to abcd
    EXPECT_EQ(Encode(BytePairEncoder(vocabulary), "abcd"), (std::vector<int32_t>{256, 'c', 'd'}));
    vocabulary.whole_words_first = true;
    const BytePairEncoder whole(vocabulary);
    EXPECT_EQ(Encode(whole, "abcd"), (std::vector<int32_t>{258}));
    EXPECT_EQ(Encode(whole, "abcda"), (std::vector<int32_t>{256, 'c', 'd', 'a'}));
}

TEST(BytePairEncoder, NeverMakesASpecialToken) {
    BytePairVocabulary vocabulary = BytesAnd({"ab", "", "abc"});
    vocabulary.whole_words_first = true;
    const BytePairEncoder encoder(vocabulary);
    EXPECT_EQ(Encode(encoder, "abc"), (std::vector<int32_t>{258}));
    EXPECT_EQ(encoder.tokens()[257], "");
}

// Doubling tokens of one letter, as real vocabularies have of blanks: a merge after the other, and all overlap. A
// quadratic loop takes minutes.
TEST(BytePairEncoder, TakesAMillionOfOneByteInALogarithmOfPasses) {
    const BytePairEncoder encoder(BytesAnd({"aa", "aaaa", "aaaaaaaa"}));
    const auto start = std::chrono::steady_clock::now();
    const std::vector<int32_t> tokens = Encode(encoder, std::string(1000003, 'a'));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    ASSERT_EQ(tokens.size(), 125002u);
    EXPECT_EQ(tokens[125000], 256);
    EXPECT_EQ(tokens[125001], 'a');
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 258), 125000);
}

TEST(BytePairEncoder, RefusesAByteWithoutAToken) {
    BytePairVocabulary vocabulary = BytesAnd({"ab"});
    vocabulary.tokens[200].clear();
    ExpectError([&] { BytePairEncoder{vocabulary}; }, {"test", "no token for the byte 200"});
}

TEST(BytePairEncoder, RefusesTwoTokensOfTheSameBytes) {
    ExpectError([] { BytePairEncoder{BytesAnd({"ab", "cd", "ab"})}; }, {"test", "tokens 256 and 258", "same bytes"});
}

TEST(BytePairEncoder, RefusesTwoMergesOfAPair) {
    BytePairVocabulary vocabulary = BytesAnd({"ab"});
    vocabulary.merges.push_back({.left = 'a', .right = 'b', .token = 256, .rank = 7});
    ExpectError([&] { BytePairEncoder{vocabulary}; }, {"test", "two merges of the tokens 97 and 98"});
}

TEST(MergesOfRanks, CutsATokenWhereBothPartsAreTokens) {
    const std::vector<BytePairMerge> merges = BytesAnd({"ab", "", "abc"}).merges;
    ASSERT_EQ(merges.size(), 2u);
    EXPECT_EQ(merges[0].left, 'a');
    EXPECT_EQ(merges[0].right, 'b');
    EXPECT_EQ(merges[0].token, 256);
    EXPECT_EQ(merges[1].left, 256);
    EXPECT_EQ(merges[1].right, 'c');
    EXPECT_EQ(merges[1].token, 258);
    EXPECT_EQ(merges[1].rank, 258);
}

}  // namespace
}  // namespace infini_train::data
