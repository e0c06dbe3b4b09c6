#include "infini_train/include/data/byte_tokenizer.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

namespace infini_train::data {
namespace {

TEST(ByteTokenizer, MakesATokenOfEachByte) {
    const ByteTokenizer tokenizer;
    EXPECT_EQ(tokenizer.Encode(std::string_view("a\0\xff\n", 4)), (std::vector<int32_t>{97, 0, 255, 10}));
    EXPECT_TRUE(tokenizer.Encode("").empty());
}

TEST(ByteTokenizer, GivesEveryByteBack) {
    std::string text;
    for (int byte = 0; byte < 256; ++byte) {
        text.push_back(static_cast<char>(byte));
    }
    const ByteTokenizer tokenizer;
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
}

TEST(ByteTokenizer, SkipsTheEndOfTextWhenDecoding) {
    const ByteTokenizer tokenizer;
    ASSERT_EQ(tokenizer.end_of_text(), 256);
    EXPECT_EQ(tokenizer.vocab_size(), 257);
    EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{'a', 256, 'b'}), "ab");
}

TEST(ByteTokenizer, RefusesIdsThatItDoesNotHave) {
    const ByteTokenizer tokenizer;
    EXPECT_THROW(tokenizer.Decode(std::vector<int32_t>{257}), Error);
    EXPECT_THROW(tokenizer.Decode(std::vector<int32_t>{-1}), Error);
}

}  // namespace
}  // namespace infini_train::data
