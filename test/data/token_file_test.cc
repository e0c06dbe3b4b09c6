#include "infini_train/include/data/token_file.h"

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using test::ExpectError;

class TokenFileTest : public test::TokenTest {
 protected:
    /// The header that a good file of three tokens has, with some words changed.
    std::string WriteChanged(const std::map<size_t, int32_t>& changed) const {
        std::map<size_t, int32_t> header = {{0, 20240520}, {1, 1}, {2, 3}};
        for (const auto& [index, word] : changed) {
            header[index] = word;
        }
        return WriteWords<uint16_t>("changed.bin", header, {1, 2, 3});
    }
};

std::vector<int32_t> AllTokens(const TokenFile& file) {
    std::vector<int32_t> tokens(static_cast<size_t>(file.num_tokens()));
    file.Read(0, file.num_tokens(), tokens.data());
    return tokens;
}

TEST_F(TokenFileTest, ReadsGpt2Tokens) {
    const TokenFile file(WriteGpt2("tokens.bin", {0, 1, 50256, 65535}));
    EXPECT_EQ(file.kind(), TokenKind::kGpt2);
    EXPECT_EQ(AllTokens(file), (std::vector<int32_t>{0, 1, 50256, 65535}));
}

TEST_F(TokenFileTest, ReadsLlama3Tokens) {
    const TokenFile file(WriteLlama3("tokens.bin", {128255, 0, 70000}));
    EXPECT_EQ(file.kind(), TokenKind::kLlama3);
    EXPECT_EQ(AllTokens(file), (std::vector<int32_t>{128255, 0, 70000}));
}

TEST_F(TokenFileTest, ReadsATextFileAsBytes) {
    const TokenFile file(WriteBytes("a.txt", std::string("h\xc3\xa9\0\n", 5)));
    EXPECT_EQ(file.kind(), TokenKind::kText);
    EXPECT_EQ(AllTokens(file), (std::vector<int32_t>{'h', 0xc3, 0xa9, 0, '\n'}));
}

TEST_F(TokenFileTest, ReadsAPartInTheMiddle) {
    const TokenFile file(WriteGpt2("tokens.bin", {10, 11, 12, 13, 14}));
    std::vector<int32_t> part(4, -1);
    file.Read(2, 3, part.data());
    EXPECT_EQ(part, (std::vector<int32_t>{12, 13, 14, -1}));
}

TEST_F(TokenFileTest, OutlivesTheFileItWasCopiedFrom) {
    auto file = std::make_unique<TokenFile>(WriteGpt2("tokens.bin", {10, 11}));
    const TokenFile copy = *file;
    file.reset();
    EXPECT_EQ(AllTokens(copy), (std::vector<int32_t>{10, 11}));
}

TEST_F(TokenFileTest, RefusesAFileThatIsNotThere) {
    ExpectError([&] { TokenFile(Path("none.bin")); }, {Path("none.bin"), "cannot open", "No such file"});
}

TEST_F(TokenFileTest, RefusesAFolder) {
    ExpectError([&] { TokenFile(Path("")); }, {"this is a folder"});
}

TEST_F(TokenFileTest, RefusesAPipeWithoutWaitingForIt) {
    ASSERT_EQ(mkfifo(Path("pipe.bin").c_str(), 0600), 0);
    ExpectError([&] { TokenFile(Path("pipe.bin")); }, {"not a regular file"});
}

TEST_F(TokenFileTest, RefusesAnEmptyFile) {
    ExpectError([&] { TokenFile(WriteBytes("empty.bin", "")); }, {"empty.bin", "empty"});
    ExpectError([&] { TokenFile(WriteBytes("empty.txt", "")); }, {"empty.txt", "empty"});
}

TEST_F(TokenFileTest, RefusesAFileShorterThanAHeader) {
    ExpectError([&] { TokenFile(WriteBytes("short.bin", std::string(1023, '\0'))); }, {"1023 bytes", "1024"});
}

TEST_F(TokenFileTest, RefusesAnUnknownMagic) {
    ExpectError(
        [&] {
            TokenFile(WriteChanged({{0, 1234}}));
        },
        {"changed.bin", "unknown magic", "got 1234", "20240520", "20240801", ".txt"});
}

TEST_F(TokenFileTest, NamesTheFilesItKnows) {
    const std::map<int32_t, std::string> names = {{20240326, "GPT-2 weights"},   {20240327, "GPT-2 debug state"},
                                                  {20240328, "GPT-2 tokenizer"}, {20240522, "evaluation"},
                                                  {20240527, "trainer state"},   {20240803, "LLaMA-3 weights"}};
    for (const auto& [magic, name] : names) {
        ExpectError([&] { TokenFile(WriteChanged({{0, magic}})); }, {"this is a", name});
    }
}

TEST_F(TokenFileTest, NamesALlama3TokenizerThatSharesTheMagic) {
    for (const int32_t version : {1, 2}) {
        ExpectError([&] { TokenFile(WriteChanged({{0, 20240801}, {1, version}})); }, {"LLaMA-3 tokenizer"});
    }
}

TEST_F(TokenFileTest, RefusesTheOtherByteOrder) {
    for (const uint32_t magic : {20240520u, 20240801u, 20240326u}) {
        const auto swapped = static_cast<int32_t>(__builtin_bswap32(magic));
        ExpectError([&] { TokenFile(WriteChanged({{0, swapped}})); }, {"wrong byte order"});
    }
}

TEST_F(TokenFileTest, RefusesTheVersionOfTheOtherKind) {
    ExpectError([&] { TokenFile(WriteChanged({{1, 7}})); }, {"version", "got 7", "wanted 1"});
    ExpectError([&] { TokenFile(WriteChanged({{0, 20240801}, {1, 3}})); }, {"version", "got 3", "wanted 7"});
}

TEST_F(TokenFileTest, RefusesACountThatIsNotPositive) {
    ExpectError([&] { TokenFile(WriteWords<uint16_t>("none.bin", {{0, 20240520}, {1, 1}, {2, 0}}, {})); }, {"got 0"});
    for (const int32_t count : {-1, -3, INT32_MIN}) {
        ExpectError([&] { TokenFile(WriteChanged({{2, count}})); }, {"got " + std::to_string(count)});
    }
}

TEST_F(TokenFileTest, RefusesUsedWordsOfTheHeader) {
    for (const size_t word : {3u, 100u, 255u}) {
        ExpectError(
            [&] {
                TokenFile(WriteChanged({{word, 5}}));
            },
            {"header word " + std::to_string(word), "got 5", "wanted 0"});
    }
}

TEST_F(TokenFileTest, RefusesACutFile) {
    ExpectError([&] { TokenFile(WriteChanged({{2, 4}})); }, {"cut short", "got 1030 bytes", "wanted 1032"});
    ExpectError([&] { TokenFile(WriteChanged({{2, INT32_MAX}})); }, {"cut short", "wanted 4294968318"});
    ExpectError(
        [&] {
            TokenFile(WriteWords<uint32_t>("one.bin", {{0, 20240801}, {1, 7}, {2, INT32_MAX}}, {1}));
        },
        {"cut short", "wanted 8589935612"});
}

TEST_F(TokenFileTest, RefusesBytesAfterTheTokens) {
    ExpectError([&] { TokenFile(WriteChanged({{2, 2}})); }, {"after the last token", "got 1030 bytes", "wanted 1028"});
}

TEST_F(TokenFileTest, FindsTheFirstIdOutsideTheVocabulary) {
    std::vector<uint16_t> tokens(70000, 50256);  // more than are looked at together
    EXPECT_NO_THROW(TokenFile(WriteGpt2("good.bin", tokens)).CheckVocab(50257));
    tokens[69999] = 65535;
    tokens[66000] = 50257;
    const TokenFile file(WriteGpt2("bad.bin", tokens));
    ExpectError([&] { file.CheckVocab(50257); }, {Path("bad.bin"), "token 66000", "got id 50257", "an id below 50257"});
    ExpectError([&] { file.CheckVocab(50258); }, {"token 69999", "got id 65535"});
    ExpectError([&] { file.CheckVocab(65535); }, {"token 69999"});
    EXPECT_NO_THROW(file.CheckVocab(65536));
}

TEST_F(TokenFileTest, ComparesLargeIdsWithoutASign) {
    const TokenFile file(WriteLlama3("tokens.bin", {128255, 0xffffffffu, 128256}));
    ExpectError([&] { file.CheckVocab(128256); }, {"token 1", "got id 4294967295", "an id below 128256"});
    const TokenFile reserved(WriteLlama3("reserved.bin", {128255, 128256}));
    ExpectError([&] { reserved.CheckVocab(128256); }, {"token 1", "got id 128256"});
    EXPECT_NO_THROW(reserved.CheckVocab(128257));
}

TEST_F(TokenFileTest, ChecksTheBytesOfATextToo) {
    const TokenFile file(WriteBytes("a.txt", "abc\xff"));
    ExpectError([&] { file.CheckVocab(131); }, {"token 3", "got id 255"});
    EXPECT_NO_THROW(file.CheckVocab(256));
}

TEST_F(TokenFileTest, DiesOnTokensThatAreNotThere) {
    const TokenFile file(WriteGpt2("tokens.bin", {1, 2}));
    std::vector<int32_t> tokens(3);
    EXPECT_DEATH(file.Read(1, 2, tokens.data()), "of 2");
    EXPECT_DEATH(file.Read(-1, 1, tokens.data()), "of 2");
}

}  // namespace
}  // namespace infini_train::data
