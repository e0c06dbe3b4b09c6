#include "infini_train/include/data/tokenizer.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/src/data/byte_pair_tokenizer.h"
#include "test/data/byte_pair_test_vocabulary.h"
#include "test/data/token_test_files.h"
#include "test/support/run_program.h"

namespace infini_train::data {
namespace {

using nlohmann::json;
using test::ExpectError;
using test::kTrainingText;

class MakeTokenizerTest : public test::TokenTest {};

TEST_F(MakeTokenizerTest, KnowsTheByteTokenizer) {
    EXPECT_EQ(MakeTokenizer("byte")->vocab_size(), 257);
}

TEST_F(MakeTokenizerTest, RefusesANameThatIsNoFile) {
    for (const std::string& name : {std::string("bpe"), std::string(""), Path("none")}) {
        ExpectError([&] { MakeTokenizer(name); },
                    {"--tokenizer: no such tokenizer (got '" + name + "', wanted byte, a file"});
    }
}

TEST_F(MakeTokenizerTest, PrefersTokenizerJsonThenGpt2sFilesThenRanks) {
    ExpectError([&] { MakeTokenizer(Path("")); }, {Path(""), "no tokenizer in this folder", "tokenizer.json"});
    WriteBytes("tokenizer.model", "?");
    ExpectError([&] { MakeTokenizer(Path("")); }, {"tokenizer.model", "not a tokenizer"});
    WriteBytes("vocab.json", "?");
    ExpectError([&] { MakeTokenizer(Path("")); }, {"tokenizer.model"});
    WriteBytes("merges.txt", "?");
    ExpectError([&] { MakeTokenizer(Path("")); }, {"vocab.json", "not JSON"});
    WriteBytes("tokenizer.json", "{");
    ExpectError([&] { MakeTokenizer(Path("")); }, {"tokenizer.json", "not JSON"});
}

TEST_F(MakeTokenizerTest, RefusesWhatIsNoRegularFile) {
    ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
    ExpectError([&] { MakeTokenizer(Path("pipe")); }, {"pipe", "not a regular file"});
    ExpectError([] { MakeTokenizer("/dev/null"); }, {"/dev/null", "not a regular file"});
}

TEST_F(MakeTokenizerTest, RefusesAFileThatIsTooLarge) {
    WriteBytes("large", "{");
    std::filesystem::resize_file(Path("large"), (uint64_t{64} << 20) + 1);
    ExpectError([&] { MakeTokenizer(Path("large")); }, {"large", "too large", "67108865 bytes"});
}

/// The trained tokens with GPT-2's words, and special ones that begin alike.
BytePairVocabulary SmallVocabulary() {
    BytePairVocabulary vocabulary = {.file = "test", .whole_words_first = true, .pattern = kGpt2Pattern};
    vocabulary.tokens = test::Train(kTrainingText, 200).tokens;
    vocabulary.merges = MergesOfRanks(vocabulary.tokens);
    for (const char* name : {"<|a|>", "<|a|>b", "[X]", "<|end_of_text|>"}) {
        vocabulary.special_tokens.emplace(name, static_cast<int32_t>(vocabulary.tokens.size()));
        vocabulary.tokens.emplace_back();
    }
    return vocabulary;
}

TEST(Tokenizer, FindsSpecialTokensInPromptsOnly) {
    const BytePairTokenizer tokenizer(SmallVocabulary());
    const int32_t first = tokenizer.special_tokens().at("<|a|>");
    const auto join = [&](const std::vector<std::vector<int32_t>>& parts) {
        std::vector<int32_t> all;
        for (const auto& part : parts) {
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    };
    const auto text = [&](const char* words) { return tokenizer.Encode(words); };
    EXPECT_EQ(tokenizer.EncodeWithSpecials("<|a|>"), std::vector<int32_t>{first});
    EXPECT_EQ(tokenizer.EncodeWithSpecials("<|a|>b<|a|> b"), join({{first + 1, first}, text(" b")}));
    EXPECT_EQ(tokenizer.EncodeWithSpecials("the[X]the[X"), join({text("the"), {first + 2}, text("the[X")}));
    EXPECT_EQ(tokenizer.EncodeWithSpecials("<<|a|><|a|"), join({text("<"), {first}, text("<|a|")}));
    EXPECT_EQ(tokenizer.EncodeWithSpecials("the stages"), text("the stages"));
    EXPECT_TRUE(tokenizer.EncodeWithSpecials("").empty());
    for (const int32_t token : tokenizer.Encode("<|a|>b[X]<|end_of_text|>")) {
        EXPECT_LT(token, first);
    }
    EXPECT_EQ(MakeTokenizer("byte")->EncodeWithSpecials("a<"), (std::vector<int32_t>{'a', '<'}));
}

TEST(Tokenizer, GivesRandomBytesBack) {
    const BytePairTokenizer tokenizer(SmallVocabulary());
    std::mt19937 random(7);
    for (int i = 0; i < 500; ++i) {
        // Parts of the text and bytes that make its UTF-8 ill-formed.
        std::string text;
        for (int part = 0; part < 8; ++part) {
            text += kTrainingText.substr(random() % kTrainingText.size(), random() % 9);
            text.append(random() % 3, static_cast<char>(random()));
        }
        ASSERT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
        ASSERT_EQ(tokenizer.Decode(tokenizer.EncodeWithSpecials(text)), text);
    }
}

TEST(Tokenizer, IsSharedByThreads) {
    const BytePairTokenizer tokenizer(SmallVocabulary());
    const std::vector<int32_t> wanted = tokenizer.Encode(kTrainingText);
    std::vector<int> num_wrong(4);
    std::vector<std::thread> threads;
    for (int& count : num_wrong) {
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i) {
                count += tokenizer.Encode(kTrainingText) == wanted ? 0 : 1;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(num_wrong, std::vector<int>(4));
}

TEST(Tokenizer, TakesAMegabyteOfOneCharacter) {
    for (const char* pattern : {kGpt2Pattern, kLlama3Pattern}) {
        BytePairVocabulary vocabulary = SmallVocabulary();
        vocabulary.pattern = pattern;
        const BytePairTokenizer tokenizer(vocabulary);
        for (const char* character : {"a", "^", " ", "\n", "\xff", "流"}) {
            std::string text;
            while (text.size() < 1000000) {
                text += character;
            }
            const auto start = std::chrono::steady_clock::now();
            EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
            // A tenth of a second or so, but a machine can be busy; a quadratic loop takes minutes.
            EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << character;
        }
    }
}

/// The cases of a reference folder with one tokenizer.
void CheckCases(const std::string& folder, const std::string& tokenizer_path, const char* key) {
    const auto tokenizer = MakeTokenizer(folder + "/" + tokenizer_path);
    const json cases = json::parse(infini_train::test::ReadTextFile(folder + "/encode_cases.json"));
    ASSERT_GT(cases.size(), 0u);
    for (const json& one : cases) {
        const std::string text = one.at("text");
        const std::vector<int32_t> wanted = one.at(key);
        EXPECT_EQ(tokenizer->Encode(text), wanted) << text;
        EXPECT_EQ(tokenizer->Decode(wanted), text);
    }
}

TEST(Tokenizer, GivesTheIdsOfTheReference) {
    int num_folders = 0;
    for (const std::string& reference : infini_train::test::ReferenceFolders()) {
        const std::string folder = reference + "/tokenizer";
        if (std::filesystem::exists(folder)) {
            CheckCases(folder, "gpt2", "gpt2");
            CheckCases(folder, "cl100k_base.tiktoken", "cl100k");
            ++num_folders;
        }
    }
    if (num_folders == 0) {
        GTEST_SKIP() << "needs the vocabularies of GPT-2 and cl100k: INFINI_REFERENCE_DIR";
    }
}

}  // namespace
}  // namespace infini_train::data
