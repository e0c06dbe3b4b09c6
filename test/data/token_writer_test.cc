#include "infini_train/include/data/token_writer.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/data/token_file.h"
#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using test::ExpectError;

class TokenWriterTest : public test::TokenTest {};

std::string Contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_F(TokenWriterTest, WritesTheBytesOfTheFormat) {
    WriteTokenFile(Path("a.bin"), std::vector<int32_t>{0, 258, 65535}, TokenKind::kGpt2);
    EXPECT_EQ(Contents(Path("a.bin")), Contents(WriteGpt2("wanted.bin", {0, 258, 65535})));
    WriteTokenFile(Path("b.bin"), std::vector<int32_t>{0, 258, INT32_MAX}, TokenKind::kLlama3);
    EXPECT_EQ(Contents(Path("b.bin")), Contents(WriteLlama3("wanted.bin", {0, 258, INT32_MAX})));
}

TEST_F(TokenWriterTest, JoinsWhatIsAppended) {
    for (const TokenKind kind : {TokenKind::kGpt2, TokenKind::kLlama3}) {
        std::vector<int32_t> tokens((1 << 20) + 7);  // more than are written at once
        for (size_t i = 0; i < tokens.size(); ++i) {
            tokens[i] = static_cast<int32_t>(i * 7 % 65536);
        }
        TokenFileWriter writer(Path("a.bin"), kind);
        writer.Append(std::vector<int32_t>{5});
        writer.Append({});
        writer.Append(tokens);
        EXPECT_EQ(writer.num_tokens(), (1 << 20) + 8);
        writer.Commit();
        EXPECT_EQ(static_cast<int64_t>(Contents(Path("a.bin")).size()), writer.size_bytes());
        const TokenFile file(Path("a.bin"));
        std::vector<int32_t> got(tokens.size());
        file.Read(1, static_cast<int64_t>(tokens.size()), got.data());
        EXPECT_EQ(got, tokens);
    }
}

TEST_F(TokenWriterTest, LeavesTheOldFileUntilTheNewOneIsComplete) {
    WriteGpt2("a.bin", {1, 2});
    {
        TokenFileWriter writer(Path("a.bin"), TokenKind::kGpt2);
        writer.Append(std::vector<int32_t>{3});
        writer.Finish();
        EXPECT_EQ(TokenFile(Path("a.bin")).num_tokens(), 2);
    }
    EXPECT_EQ(TokenFile(Path("a.bin")).num_tokens(), 2);
    EXPECT_EQ(FilesInFolder(), std::vector<std::string>{"a.bin"});
    WriteTokenFile(Path("a.bin"), std::vector<int32_t>{3}, TokenKind::kGpt2);
    EXPECT_EQ(TokenFile(Path("a.bin")).num_tokens(), 1);
    EXPECT_EQ(FilesInFolder(), std::vector<std::string>{"a.bin"});
}

TEST_F(TokenWriterTest, RefusesIdsThatDoNotFit) {
    const auto write = [&](int32_t id, TokenKind kind) {
        return [this, id, kind] { WriteTokenFile(Path("a.bin"), std::vector<int32_t>{1, id}, kind); };
    };
    ExpectError(write(65536, TokenKind::kGpt2), {"a.bin", "token 1", "id 65536", "0 to 65535"});
    ExpectError(write(-1, TokenKind::kGpt2), {"token 1", "id -1"});
    ExpectError(write(-1, TokenKind::kLlama3), {"token 1", "id -1", "0 to 2147483647"});
    EXPECT_TRUE(FilesInFolder().empty());
}

TEST_F(TokenWriterTest, RefusesMoreTokensThanTheHeaderCanSay) {
    TokenFileWriter writer(Path("a.bin"), TokenKind::kGpt2);
    writer.Append(std::vector<int32_t>{1});
    // Only the length of the span is looked at before it is refused.
    const int32_t token = 0;
    ExpectError([&] { writer.Append(std::span<const int32_t>(&token, size_t{INT32_MAX})); },
                {"too many tokens", "at most 2147483647"});
    EXPECT_EQ(writer.num_tokens(), 1);
}

TEST_F(TokenWriterTest, RefusesAFileWithoutTokens) {
    ExpectError([&] { WriteTokenFile(Path("a.bin"), {}, TokenKind::kGpt2); }, {"no tokens"});
    EXPECT_TRUE(FilesInFolder().empty());
}

TEST_F(TokenWriterTest, RefusesPlacesWhereNoFileCanBe) {
    const std::vector<int32_t> tokens = {1};
    ExpectError([&] { WriteTokenFile(Path("none/a.bin"), tokens, TokenKind::kGpt2); },
                {"none/a.bin", "cannot make", "No such file"});
    ExpectError([&] { WriteTokenFile(Path(""), tokens, TokenKind::kGpt2); }, {"not a regular file"});
    ExpectError([&] { WriteTokenFile("/dev/null", tokens, TokenKind::kGpt2); }, {"not a regular file"});
    ExpectError([&] { WriteTokenFile(Path("a.txt"), tokens, TokenKind::kGpt2); }, {"read as text"});
    EXPECT_TRUE(FilesInFolder().empty());
}

}  // namespace
}  // namespace infini_train::data
