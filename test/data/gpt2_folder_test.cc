#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/data/tokenizer.h"
#include "infini_train/src/data/byte_level_alphabet.h"
#include "test/data/byte_pair_test_vocabulary.h"
#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using nlohmann::json;
using test::ExpectError;
using test::kTrainingText;

class Gpt2FolderTest : public test::TokenTest {
 protected:
    Gpt2FolderTest() {
        for (const auto& [left, right] : trained_.merges) {
            merges_ += test::ToByteLevelAlphabet(left) + " " + test::ToByteLevelAlphabet(right) + "\n";
        }
    }
    std::string Write(const std::string& vocabulary, const std::string& merges) const {
        WriteBytes("vocab.json", vocabulary);
        WriteBytes("merges.txt", merges);
        return Path("");
    }
    void ExpectRefusal(const json& vocabulary, const std::string& merges, const std::vector<std::string>& parts) const {
        ExpectError([&] { MakeTokenizer(Write(vocabulary.dump(), merges)); }, parts);
    }

    const test::TrainedTokens trained_ = test::Train(kTrainingText, 200);
    const json vocabulary_ = test::VocabularyJson(trained_);
    std::string merges_ = "#version: 0.2\n";
};

TEST_F(Gpt2FolderTest, EncodesByTheOrderOfTheMerges) {
    const auto tokenizer = MakeTokenizer(Write(vocabulary_.dump(), merges_));
    const std::vector<int32_t> tokens = tokenizer->Encode(kTrainingText);
    EXPECT_EQ(tokens, test::EncodeSimply(kTrainingText, trained_, kGpt2Pattern));
    EXPECT_LT(tokens.size(), kTrainingText.size() / 2);
    EXPECT_EQ(tokenizer->Decode(tokens), kTrainingText);
    EXPECT_EQ(tokenizer->vocab_size(), static_cast<int>(vocabulary_.size()));
}

TEST_F(Gpt2FolderTest, ReadsMergesWithAndWithoutAVersionAndALastLineEnd) {
    const std::vector<int32_t> wanted = test::EncodeSimply(kTrainingText, trained_, kGpt2Pattern);
    std::string windows;
    for (const char byte : merges_) {
        windows += byte == '\n' ? "\r\n" : std::string(1, byte);
    }
    const std::string plain = merges_.substr(merges_.find('\n') + 1);
    for (const std::string& merges : {plain, plain.substr(0, plain.size() - 1), merges_ + "\n", windows}) {
        EXPECT_EQ(MakeTokenizer(Write(vocabulary_.dump(), merges))->Encode(kTrainingText), wanted);
    }
}

TEST_F(Gpt2FolderTest, KnowsASpecialTokenByItsMissingMerge) {
    const auto tokenizer = MakeTokenizer(Write(vocabulary_.dump(), merges_));
    const auto id = static_cast<int32_t>(trained_.tokens.size());
    EXPECT_EQ(tokenizer->special_tokens(), (Tokenizer::SpecialTokens{{"<|endoftext|>", id}}));
    EXPECT_EQ(tokenizer->end_of_text(), id);
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("<|endoftext|>")), "<|endoftext|>");
    EXPECT_EQ(tokenizer->EncodeWithSpecials("<|endoftext|><|endoftext|>"), (std::vector<int32_t>{id, id}));
}

TEST_F(Gpt2FolderTest, GivesEveryByteBack) {
    const auto tokenizer = MakeTokenizer(Write(vocabulary_.dump(), merges_));
    std::string text;
    for (int i = 0; i < 256 * 256; ++i) {
        text.push_back(static_cast<char>(i >> 8));
        text.push_back(static_cast<char>(i));
    }
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
}

TEST_F(Gpt2FolderTest, RefusesAVocabularyWhoseIdsAreNotDense) {
    for (const json& id : {json(-1), json(vocabulary_.size()), json(INT64_MAX), json(UINT64_MAX), json(INT64_MIN)}) {
        json vocabulary = vocabulary_;
        vocabulary["a"] = id;
        ExpectRefusal(vocabulary, merges_, {"vocab.json", "are not 0 to", "\"a\""});
    }
    json vocabulary = vocabulary_;
    vocabulary["a"] = vocabulary["b"];
    ExpectRefusal(vocabulary, merges_, {"vocab.json", "two tokens have the id", "\"a\" and \"b\""});
    vocabulary["a"] = 1.5;
    ExpectRefusal(vocabulary, merges_, {"vocab.json", "\"a\" is no integer"});
    vocabulary = vocabulary_;
    vocabulary[""] = vocabulary.size();
    ExpectRefusal(vocabulary, merges_, {"vocab.json", "is empty"});
}

TEST_F(Gpt2FolderTest, RefusesAVocabularyThatIsNotJson) {
    for (const std::string& bad :
         {std::string(""), std::string("{"), vocabulary_.dump() + "x", std::string("{\"\xff\": 0}")}) {
        ExpectError([&] { MakeTokenizer(Write(bad, merges_)); }, {"vocab.json", "not JSON at byte"});
    }
    ExpectError([&] { MakeTokenizer(Write(vocabulary_.dump() + std::string(1, '\0'), merges_)); },
                {"vocab.json", "is NUL"});
    ExpectError([&] { MakeTokenizer(Write(std::string(1000000, '['), merges_)); }, {"vocab.json", "nested deeper"});
    ExpectError([&] { MakeTokenizer(Write("{\"a\": 1e999}", merges_)); }, {"vocab.json", "number that is too large"});
    ExpectRefusal(json::array({1, 2}), merges_, {"vocab.json", "no JSON object"});
}

TEST_F(Gpt2FolderTest, RefusesATokenThatIsNotOfTheAlphabet) {
    json vocabulary = vocabulary_;
    vocabulary.erase("a");
    vocabulary["流"] = vocabulary_["a"];  // by itself a special token, but then there is none for the byte
    ExpectRefusal(vocabulary, "", {Path("") + ": no token for the byte 97"});
}

TEST_F(Gpt2FolderTest, RefusesLinesThatAreNoMerges) {
    const std::string first = test::ToByteLevelAlphabet(trained_.merges[0].first) + " " +
                              test::ToByteLevelAlphabet(trained_.merges[0].second) + "\n";
    for (const char* bad : {"a", "a  b", "a b c", ""}) {
        ExpectRefusal(vocabulary_, first + bad + "\n" + first, {"merges.txt", "line 2 is no merge"});
    }
    for (const char* bad : {"a 流", "流 a", " a", "a ", "a \xff", "a #", "< |endoftext|>", "a <|endoftext|>"}) {
        ExpectRefusal(vocabulary_, "#version\n" + first + bad + "\n", {"merges.txt, line 3", "not in the vocabulary"});
    }
    ExpectRefusal(vocabulary_, first + first, {Path("") + ": two merges of"});
}

TEST(ByteLevelAlphabet, HasACharacterForEachByte) {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) {
        bytes.push_back(static_cast<char>(byte));
    }
    EXPECT_EQ(FromByteLevelAlphabet(test::ToByteLevelAlphabet(bytes)), bytes);
    EXPECT_EQ(FromByteLevelAlphabet("ĠaĊ"), " a\n");
    EXPECT_EQ(FromByteLevelAlphabet("Ńé"), "\xad\xe9");
}

TEST(ByteLevelAlphabet, HasNoOtherCharacters) {
    for (const char* text : {" ", "\n", "\u00a0", "\u00ad", "\u0144", "流", "\xc4", "\xff", "\xc4(", "\x80"}) {
        EXPECT_EQ(FromByteLevelAlphabet(text), std::nullopt) << text;
    }
}

}  // namespace
}  // namespace infini_train::data
