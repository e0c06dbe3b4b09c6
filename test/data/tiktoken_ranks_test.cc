#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/data/tokenizer.h"
#include "test/data/byte_pair_test_vocabulary.h"
#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using test::ExpectError;
using test::kTrainingText;

std::string Base64(std::string_view bytes) {
    constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t bits = 0;
        for (size_t j = i; j < i + 3; ++j) {
            bits = bits << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0u);
        }
        for (const int shift : {18, 12, 6, 0}) {
            text.push_back(kAlphabet[bits >> shift & 63]);
        }
    }
    const size_t num_padding = (3 - bytes.size() % 3) % 3;
    return text.replace(text.size() - num_padding, num_padding, num_padding, '=');
}

class TiktokenRanksTest : public test::TokenTest {
 protected:
    /// The trained tokens, then some that no text here has.
    std::string Lines(size_t num_ranks) const {
        std::string lines;
        for (size_t rank = 0; rank < num_ranks; ++rank) {
            const std::string token =
                rank < trained_.tokens.size() ? trained_.tokens[rank] : "\xff filler " + std::to_string(rank);
            lines += Base64(token) + " " + std::to_string(rank) + "\n";
        }
        return lines;
    }
    void ExpectRefusal(const std::string& lines, std::vector<std::string> parts) const {
        const std::string path = WriteBytes("bad.tiktoken", lines);
        parts.push_back(path);
        ExpectError([&] { MakeTokenizer(path); }, parts);
    }

    const test::TrainedTokens trained_ = test::Train(kTrainingText, 200);
};

TEST_F(TiktokenRanksTest, EncodesByRankAsGpt2) {
    const auto tokenizer = MakeTokenizer(WriteBytes("r50k_base.tiktoken", Lines(50256)));
    EXPECT_EQ(tokenizer->Encode(kTrainingText), test::EncodeSimply(kTrainingText, trained_, kGpt2Pattern));
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(kTrainingText)), kTrainingText);
    EXPECT_EQ(tokenizer->end_of_text(), 50256);
    EXPECT_EQ(tokenizer->vocab_size(), 50257);
}

TEST_F(TiktokenRanksTest, EncodesByRankAsCl100k) {
    const auto tokenizer = MakeTokenizer(WriteBytes("any name", Lines(100256)));
    EXPECT_EQ(tokenizer->Encode(kTrainingText), test::EncodeSimply(kTrainingText, trained_, kLlama3Pattern));
    EXPECT_NE(tokenizer->Encode(kTrainingText), test::EncodeSimply(kTrainingText, trained_, kGpt2Pattern));
    EXPECT_EQ(tokenizer->end_of_text(), 100257);
    EXPECT_EQ(tokenizer->begin_of_text(), std::nullopt);
    EXPECT_EQ(tokenizer->vocab_size(), 100277);
    EXPECT_EQ(tokenizer->EncodeWithSpecials("<|fim_prefix|>a<|endofprompt|>"),
              (std::vector<int32_t>{100258, tokenizer->Encode("a")[0], 100276}));
    // Ids that cl100k has no token for, as tiktoken has them.
    EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{100256, 100261}), "");
    ExpectError([&] { tokenizer->Decode(std::vector<int32_t>{100277}); }, {"any name", "got 100277", "0 to 100276"});
    ExpectError([&] { tokenizer->Decode(std::vector<int32_t>{-1}); }, {"got -1"});
}

TEST_F(TiktokenRanksTest, KnowsTheSpecialTokensOfLlama3) {
    const std::string lines = Lines(128000);
    const auto tokenizer = MakeTokenizer(WriteBytes("tokenizer.model", lines.substr(0, lines.size() - 1)));
    EXPECT_EQ(tokenizer->Encode(kTrainingText), test::EncodeSimply(kTrainingText, trained_, kLlama3Pattern));
    EXPECT_EQ(tokenizer->vocab_size(), 128256);
    EXPECT_EQ(tokenizer->begin_of_text(), 128000);
    EXPECT_EQ(tokenizer->end_of_text(), 128001);
    const Tokenizer::SpecialTokens& special = tokenizer->special_tokens();
    ASSERT_EQ(special.size(), 256u);
    std::vector<bool> is_seen(256);
    for (const auto& [name, id] : special) {
        is_seen.at(static_cast<size_t>(id - 128000)) = true;
    }
    EXPECT_EQ(std::count(is_seen.begin(), is_seen.end(), true), 256);
    EXPECT_EQ(special.at("<|eot_id|>"), 128009);
    EXPECT_EQ(special.at("<|reserved_special_token_2|>"), 128005);
    EXPECT_EQ(special.at("<|reserved_special_token_247|>"), 128255);
}

TEST_F(TiktokenRanksTest, RefusesANumberOfRanksThatItDoesNotKnow) {
    for (const size_t num_ranks : {400u, 50255u, 100257u}) {
        ExpectRefusal(Lines(num_ranks), {std::to_string(num_ranks) + " ranks", "50256", "100256", "128000"});
    }
}

TEST_F(TiktokenRanksTest, RefusesLinesThatAreNotAsTheyMustBe) {
    const std::string good = "IQ== 0\n";
    for (const char* bad : {"IQ==1", "IQ== ", "IQ== x", "IQ== 1 ", "IQ== 1x", " 1", "IQ= 1", "IQ 1", "I=== 1", "IR== 1",
                            "I!== 1", "=Q== 1", "IQ==IQ== 1", "IQ== 1\r", "", "IQ== +1", "IQ== 99999999999999999999"}) {
        ExpectRefusal(good + bad + "\n", {"line 2 is not a base64 text and its rank"});
    }
    for (const char* bad : {"Ig== 0", "Ig== 2", "Ig== 18446744073709551615"}) {
        ExpectRefusal(good + bad + "\n", {"line 2 has the wrong rank", "wanted 1"});
    }
    ExpectRefusal(good + "Ig== -1\n", {"line 2"});
    ExpectRefusal(good + Base64(std::string(256, 'a')) + " 1\n", {"rank 1 is too long", "256 bytes"});
    ExpectRefusal(Lines(50255) + Base64(" ") + " 50255\n", {"same bytes"});
}

TEST_F(TiktokenRanksTest, RefusesFilesOfOtherTokenizers) {
    ExpectRefusal("\n\x0e\n\x05<unk>\x15", {"not a tokenizer", "base64 ranks"});  // SentencePiece's tokenizer.model
    ExpectRefusal("", {"not a tokenizer"});
    ExpectRefusal("some text that has blanks\n", {"not a tokenizer"});
    ExpectRefusal(std::string("a\0 b", 4), {"not a tokenizer"});
}

}  // namespace
}  // namespace infini_train::data
