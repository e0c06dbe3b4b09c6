#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/data/tokenizer.h"
#include "test/data/byte_pair_test_vocabulary.h"
#include "test/data/token_test_files.h"

namespace infini_train::data {
namespace {

using nlohmann::json;
using test::ExpectError;
using test::kTrainingText;

class TokenizerJsonTest : public test::TokenTest {
 protected:
    TokenizerJsonTest() {
        json merges = json::array();
        for (const auto& [left, right] : trained_.merges) {
            merges.push_back({test::ToByteLevelAlphabet(left), test::ToByteLevelAlphabet(right)});
        }
        const auto added = [](const char* name, size_t id) {
            return json{{"id", id},        {"content", name},     {"single_word", false}, {"lstrip", false},
                        {"rstrip", false}, {"normalized", false}, {"special", true}};
        };
        const size_t num_tokens = trained_.tokens.size();
        file_ = {{"version", "1.0"},
                 {"truncation", nullptr},
                 {"padding", nullptr},
                 {"added_tokens", {added("<|endoftext|>", num_tokens), added("<|begin_of_text|>", num_tokens + 1)}},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                 {"post_processor", {{"type", "ByteLevel"}}},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"model",
                  {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", ""},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", test::VocabularyJson(trained_)},
                   {"merges", merges}}}};
    }
    std::string Write(const json& file) const { return WriteBytes("tokenizer.json", file.dump()); }

    std::vector<int32_t> EncodeWith(const json& file) const {
        return MakeTokenizer(Write(file))->Encode(kTrainingText);
    }

    void ExpectRefusal(const std::function<void(json*)>& change, const std::vector<std::string>& parts) const {
        json file = file_;
        change(&file);
        ExpectError([&] { MakeTokenizer(Write(file)); }, parts);
    }

    const test::TrainedTokens trained_ = test::Train(kTrainingText, 200);
    const std::vector<int32_t> wanted_ = test::EncodeSimply(kTrainingText, trained_, kGpt2Pattern);
    const json split_ = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", kLlama3Pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    json file_;
};

TEST_F(TokenizerJsonTest, EncodesWithGpt2sWords) {
    EXPECT_EQ(EncodeWith(file_), wanted_);
}

TEST_F(TokenizerJsonTest, EncodesWithThePatternOfTheFile) {
    json file = file_;
    file["pre_tokenizer"] = split_;
    EXPECT_EQ(EncodeWith(file), test::EncodeSimply(kTrainingText, trained_, kLlama3Pattern));
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\s|\\S+";
    EXPECT_EQ(EncodeWith(file), test::EncodeSimply(kTrainingText, trained_, "\\s|\\S+"));
}

TEST_F(TokenizerJsonTest, ReadsMergesOfBothStyles) {
    json file = file_;
    for (json& merge : file["model"]["merges"]) {
        merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    }
    EXPECT_EQ(EncodeWith(file), wanted_);
}

TEST_F(TokenizerJsonTest, ReadsFilesThatLeaveOutWhatIsUsual) {
    json file = file_;
    for (const char* key :
         {"type", "dropout", "unk_token", "continuing_subword_prefix", "byte_fallback", "ignore_merges"}) {
        file["model"].erase(key);
    }
    file.erase("normalizer");
    file["pre_tokenizer"].erase("use_regex");
    EXPECT_EQ(EncodeWith(file), wanted_);
}

TEST_F(TokenizerJsonTest, TakesWholeWordsFirstWhereMergesAreIgnored) {
    json file = file_;
    const size_t id = file["model"]["vocab"].size() + 1;
    file["model"]["vocab"]["Ġzzz"] = id;  // no merge makes it
    const auto word = static_cast<int32_t>(id);
    EXPECT_EQ(MakeTokenizer(Write(file))->Encode(" zzz").size(), 4u);
    EXPECT_EQ(MakeTokenizer(Write(file))->Decode(std::vector<int32_t>{word}), " zzz");
    file["model"]["ignore_merges"] = true;
    EXPECT_EQ(MakeTokenizer(Write(file))->Encode(" zzz"), std::vector<int32_t>{word});
}

TEST_F(TokenizerJsonTest, MakesSpecialTokensOfTheAddedOnes) {
    const auto tokenizer = MakeTokenizer(Write(file_));
    const auto id = static_cast<int32_t>(trained_.tokens.size());
    EXPECT_EQ(tokenizer->vocab_size(), id + 2);
    EXPECT_EQ(tokenizer->special_tokens(),
              (Tokenizer::SpecialTokens{{"<|begin_of_text|>", id + 1}, {"<|endoftext|>", id}}));
    EXPECT_EQ(tokenizer->end_of_text(), id);
    EXPECT_EQ(tokenizer->begin_of_text(), id + 1);
    const std::string text = "<|begin_of_text|>The<|endoftext|>";
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
    const std::vector<int32_t> prompt = tokenizer->EncodeWithSpecials(text);
    EXPECT_EQ(prompt.front(), id + 1);
    EXPECT_EQ(prompt.back(), id);
    EXPECT_EQ(tokenizer->Decode(prompt), "The");
}

TEST_F(TokenizerJsonTest, RefusesOtherKindsOfTokenizers) {
    ExpectRefusal([](json* file) { (*file)["model"]["type"] = "Unigram"; },
                  {"tokenizer.json", "model", "Unigram", "wanted BPE"});
    ExpectRefusal([](json* file) { (*file)["model"]["byte_fallback"] = true; }, {"model", "byte_fallback: true"});
    ExpectRefusal([](json* file) { (*file)["model"]["dropout"] = 0.1; }, {"model", "dropout: 0.1"});
    ExpectRefusal([](json* file) { (*file)["model"]["end_of_word_suffix"] = "</w>"; }, {"end_of_word_suffix", "</w>"});
    ExpectRefusal([](json* file) { (*file)["normalizer"] = {{"type", "NFC"}}; }, {"normalizer", "NFC"});
    ExpectRefusal([](json* file) { file->erase("pre_tokenizer"); }, {"pre_tokenizer", "missing"});
    ExpectRefusal([](json* file) { (*file)["pre_tokenizer"]["type"] = "Metaspace"; },
                  {"pre_tokenizer", "Metaspace", "ByteLevel"});
    ExpectRefusal([](json* file) { (*file)["pre_tokenizer"]["add_prefix_space"] = true; }, {"add_prefix_space: true"});
    ExpectRefusal([](json* file) { (*file)["pre_tokenizer"].erase("add_prefix_space"); }, {"add_prefix_space: null"});
    ExpectRefusal([](json* file) { (*file)["pre_tokenizer"]["use_regex"] = false; }, {"use_regex: false"});
    ExpectRefusal([](json* file) { (*file)["model"]["vocab"].erase("a"); }, {"tokenizer.json", "ids of"});
    ExpectError([&] { MakeTokenizer(Write(test::VocabularyJson(trained_))); }, {"model", "missing"});
}

TEST_F(TokenizerJsonTest, RefusesOtherSplits) {
    const auto expect = [&](const std::function<void(json*)>& change, const std::vector<std::string>& parts) {
        ExpectRefusal(
            [&](json* file) {
                (*file)["pre_tokenizer"] = split_;
                change(&(*file)["pre_tokenizer"]["pretokenizers"]);
            },
            parts);
    };
    expect([](json* parts) { (*parts)[0]["type"] = "Digits"; }, {"pre_tokenizer.pretokenizers[0]", "Digits"});
    expect([](json* parts) { (*parts)[0]["behavior"] = "Removed"; }, {"behavior", "Removed", "wanted Isolated"});
    expect([](json* parts) { (*parts)[0]["invert"] = true; }, {"invert: true"});
    expect([](json* parts) { (*parts)[0]["pattern"] = {{"String", "a"}}; }, {"pretokenizers[0].pattern", "Regex"});
    expect([](json* parts) { (*parts)[0]["pattern"] = "a"; }, {"pretokenizers[0].pattern", "an object"});
    expect([](json* parts) { (*parts)[0]["pattern"]["Regex"] = "("; }, {"tokenizer.json", "no regular expression"});
    expect([](json* parts) { (*parts)[1]["use_regex"] = true; }, {"pretokenizers[1]", "use_regex: true"});
    expect([](json* parts) { (*parts)[1]["type"] = "Whitespace"; }, {"pretokenizers[1]", "Whitespace"});
    expect([](json* parts) { parts->push_back((*parts)[0]); }, {"pretokenizers"});
    expect([](json* parts) { *parts = 1; }, {"pretokenizers: 1", "an array"});
    expect([](json* parts) { (*parts)[0] = nullptr; }, {"pretokenizers[0]", "missing"});
}

TEST_F(TokenizerJsonTest, RefusesAddedTokensThatItCannotKeepApart) {
    const auto expect = [&](const char* key, const json& value, const std::vector<std::string>& parts) {
        ExpectRefusal([&](json* file) { (*file)["added_tokens"][1][key] = value; }, parts);
    };
    expect("special", false, {"added_tokens[1]", "special: false"});
    expect("special", "yes", {"added_tokens[1]", "special: \"yes\"", "true or false"});
    expect("lstrip", true, {"added_tokens[1]", "lstrip: true"});
    expect("single_word", true, {"single_word: true"});
    expect("content", "", {"added_tokens[1]", "a name that comes once"});
    expect("content", "<|endoftext|>", {"a name that comes once"});
    expect("content", 7, {"content: 7", "a string"});
    for (const json& id : {json(-1), json("1"), json(UINT64_MAX), json(INT64_MAX), json(nullptr), json(1.0)}) {
        expect("id", id, {"added_tokens[1]", "id: ", "an id of a token"});
    }
    for (const size_t id : {size_t{INT32_MAX}, trained_.tokens.size() + 2}) {
        expect("id", id, {"ids of", std::to_string(id) + " for \"<|begin_of_text|>\""});
    }
    expect("id", 5, {"two tokens have the id 5"});
    ExpectRefusal([](json* file) { (*file)["added_tokens"][0]["id"] = 5; }, {"<|endoftext|>", "another id", "got 5"});
    ExpectRefusal([](json* file) { (*file)["added_tokens"] = 5; }, {"added_tokens: 5", "an array"});
}

TEST_F(TokenizerJsonTest, RefusesMergesThatAreNotAsTheyMustBe) {
    const auto expect = [&](const json& merge, const std::vector<std::string>& parts) {
        ExpectRefusal([&](json* file) { (*file)["model"]["merges"][3] = merge; }, parts);
    };
    for (const json& merge :
         {json("a"), json("a b c"), json(1), json({"a"}), json({"a", 1}), json({"a", "b", "c"}), json(nullptr)}) {
        expect(merge, {"model", "merges[3]", "[\"left\", \"right\"]"});
    }
    expect({"a", "#"}, {"merges[3]", "not in the vocabulary", "\"a#\""});
    expect({"", "a"}, {"merges[3]", "not in the vocabulary"});
    expect(file_["model"]["merges"][0], {"two merges of"});
    ExpectRefusal([](json* file) { (*file)["model"]["merges"] = "a b"; }, {"merges: \"a b\"", "an array"});
    // A word of text could become the special token.
    ExpectRefusal(
        [](json* file) {
            (*file)["added_tokens"].push_back((*file)["added_tokens"][0]);
            (*file)["added_tokens"][2]["content"] = "a";
            (*file)["added_tokens"][2]["id"] = (*file)["model"]["vocab"]["a"];
        },
        {"a merge of or to a special token"});
}

TEST_F(TokenizerJsonTest, RefusesTokensOfAnotherAlphabet) {
    ExpectRefusal([](json* file) { (*file)["model"]["vocab"]["▁the"] = (*file)["model"]["vocab"].size() + 1; },
                  {"tokenizer.json", "not in the byte-level alphabet", "▁the"});
}

}  // namespace
}  // namespace infini_train::data
