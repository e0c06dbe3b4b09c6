#include "example/tools/generate_text.h"

#include <string>

#include "gtest/gtest.h"

namespace infini_train {
namespace {

TEST(CharacterStream, ReturnsWholeCharacters) {
    // Of one, two, three and four bytes.
    const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
    CharacterStream stream;
    std::string seen;
    for (const char byte : text) {
        const std::string piece = stream.Push({&byte, 1});
        const bool ends_one = byte == 'a' || byte == '\xA9' || byte == '\xAC' || byte == '\x80' || byte == 'z';
        EXPECT_EQ(!piece.empty(), ends_one) << "byte " << static_cast<int>(static_cast<unsigned char>(byte));
        seen += piece;
    }
    EXPECT_EQ(seen, text);
    EXPECT_EQ(stream.Rest(), "");
}

TEST(CharacterStream, KeepsTheBeginningOfACharacterAlone) {
    CharacterStream stream;
    EXPECT_EQ(stream.Push("ab\xE2\x82"), "ab");
    EXPECT_EQ(stream.Push(""), "");
    EXPECT_EQ(stream.Push("\xAC!\xF0"), "\xE2\x82\xAC!");
    EXPECT_EQ(stream.Rest(), "\xF0");
    EXPECT_EQ(stream.Rest(), "");
}

TEST(CharacterStream, PassesBytesOfNoCharacter) {
    for (const std::string bytes :
         {"\xFF", "\x80", "\xC0", "\xC1", "\xF5", "\x80\x80\x80\x80", "\xC3\xA9\x80", "\xE2z"}) {
        CharacterStream stream;
        EXPECT_EQ(stream.Push(bytes), bytes);
    }
    CharacterStream stream;
    EXPECT_EQ(stream.Push("\xE2"), "");
    EXPECT_EQ(stream.Push("z"), "\xE2z");
    EXPECT_EQ(stream.Push(std::string("\0", 1)), std::string("\0", 1));
}

}  // namespace
}  // namespace infini_train
