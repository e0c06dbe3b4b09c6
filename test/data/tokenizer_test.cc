#include "infini_train/include/data/tokenizer.h"

#include <string>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

namespace infini_train::data {
namespace {

TEST(MakeTokenizer, KnowsTheByteTokenizer) {
    EXPECT_EQ(MakeTokenizer("byte")->vocab_size(), 257);
}

TEST(MakeTokenizer, RefusesAnUnknownName) {
    try {
        MakeTokenizer("bpe");
        FAIL() << "no Error";
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()), "--tokenizer: unknown tokenizer (got 'bpe', wanted byte)");
    }
}

}  // namespace
}  // namespace infini_train::data
