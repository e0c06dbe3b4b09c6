#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/data/tokenizer.h"
#include "test/data/byte_pair_test_vocabulary.h"
#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using test::ExpectError;
using test::kTrainingText;

class LlmcTokenizerTest : public test::TokenTest {
 protected:
    /// The tokens and the end of a text, at id 300, with these words of the header changed.
    std::string Write(const std::map<size_t, int32_t>& changes = {}, const std::string& more = "",
                      size_t cut_bytes = 0) const {
        std::map<size_t, int32_t> header = {
            {0, 20240328}, {1, 2}, {2, static_cast<int32_t>(trained_.tokens.size()) + 1}, {3, kEndOfText}};
        for (const auto& [word, value] : changes) {
            header[word] = value;
        }
        std::vector<std::string> tokens = trained_.tokens;
        tokens.insert(tokens.begin() + kEndOfText, "<|endoftext|>");
        std::vector<char> records;
        for (const std::string& token : tokens) {
            records.push_back(static_cast<char>(token.size()));
            records.insert(records.end(), token.begin(), token.end());
        }
        records.insert(records.end(), more.begin(), more.end());
        records.resize(records.size() - cut_bytes);
        return WriteWords("tokenizer.bin", header, records);
    }
    void ExpectRefusal(const std::string& path, std::vector<std::string> parts) const {
        parts.push_back(path);
        ExpectError([&] { MakeTokenizer(path); }, parts);
    }

    static constexpr int32_t kEndOfText = 300;
    const test::TrainedTokens trained_ = test::Train(kTrainingText, 200);
};

TEST_F(LlmcTokenizerTest, EncodesByTheOrderOfTheIds) {
    const auto tokenizer = MakeTokenizer(Write());
    std::vector<int32_t> wanted = test::EncodeSimply(kTrainingText, trained_, kGpt2Pattern);
    for (int32_t& token : wanted) {
        token += token >= kEndOfText ? 1 : 0;
    }
    EXPECT_EQ(tokenizer->Encode(kTrainingText), wanted);
    EXPECT_EQ(tokenizer->Decode(wanted), kTrainingText);
    EXPECT_EQ(tokenizer->vocab_size(), static_cast<int>(trained_.tokens.size()) + 1);
}

TEST_F(LlmcTokenizerTest, KnowsTheEndOfAText) {
    const auto tokenizer = MakeTokenizer(Write());
    EXPECT_EQ(tokenizer->end_of_text(), kEndOfText);
    EXPECT_EQ(tokenizer->begin_of_text(), std::nullopt);
    EXPECT_GT(tokenizer->Encode("<|endoftext|>").size(), 1u);
    EXPECT_EQ(tokenizer->EncodeWithSpecials("<|endoftext|>"), std::vector<int32_t>{kEndOfText});
    EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{kEndOfText}), "");
}

TEST_F(LlmcTokenizerTest, RefusesAHeaderThatIsNotAsItMustBe) {
    ExpectRefusal(WriteBytes("short.bin", "\xc8\xd7\x34\x01"), {"4 bytes", "1024"});
    for (const int32_t version : {0, 3, -1}) {
        ExpectRefusal(Write({{1, version}}), {"unknown version", "got " + std::to_string(version)});
    }
    ExpectRefusal(Write({{1, 1}, {3, 0}}), {"version 1", "50257"});
    for (const int32_t count : {0, -1, INT32_MAX, INT32_MIN}) {
        ExpectRefusal(Write({{2, count}}), {"number of tokens", "got " + std::to_string(count)});
    }
    for (const int32_t end : {-1, static_cast<int32_t>(trained_.tokens.size()) + 1, INT32_MAX}) {
        ExpectRefusal(Write({{3, end}}), {"end of a text", "got " + std::to_string(end)});
    }
    for (const size_t word : {4u, 255u}) {
        ExpectRefusal(Write({{word, 1}}), {"header word " + std::to_string(word)});
    }
}

TEST_F(LlmcTokenizerTest, RefusesRecordsThatAreNotAsTheyMustBe) {
    const int32_t num_tokens = static_cast<int32_t>(trained_.tokens.size()) + 1;
    ExpectRefusal(Write({}, "x"), {"bytes after the last token"});
    ExpectRefusal(Write({}, "", 1), {"ends within token " + std::to_string(num_tokens - 1)});
    ExpectRefusal(Write({{2, num_tokens + 1}}), {"ends within token " + std::to_string(num_tokens)});
    ExpectRefusal(Write({{2, num_tokens + 1}}, std::string(1, '\0')), {"has no bytes"});
    ExpectRefusal(Write({{2, num_tokens + 1}},
                        "\xff"
                        "abc"),
                  {"ends within token " + std::to_string(num_tokens)});
    ExpectRefusal(Write({{2, num_tokens + 1}},
                        "\x01"
                        "a"),
                  {"same bytes"});
    ExpectRefusal(Write({{3, 'A'}}), {"no token for the byte"});
}

}  // namespace
}  // namespace infini_train::data
