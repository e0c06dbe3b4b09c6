// What config.json of a GPT-2 may say, and what makes any config.json a bad one.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "test/checkpoint/hf_files.h"
#include "test/checkpoint/hf_gpt2_files.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::WriteTextFile;
using nlohmann::json;
using HfConfigTest = HfGpt2Test;

TEST_F(HfConfigTest, TheConfigSaysWhatTheModelIs) {
    const HfGpt2Config config = Open(Gpt2Config(), Gpt2Tensors()).config;
    EXPECT_EQ(config.block_size, 7);
    EXPECT_EQ(config.vocab_size, 5);
    EXPECT_EQ(config.padded_vocab_size, 128);
    EXPECT_EQ(config.num_layers, 2);
    EXPECT_EQ(config.num_heads, 3);
    EXPECT_EQ(config.num_channels, 6);
}

TEST_F(HfConfigTest, ItsOwnConfigReadsBack) {
    const HfGpt2Config config = {
        .block_size = 7, .vocab_size = 5, .padded_vocab_size = 9, .num_layers = 2, .num_heads = 3, .num_channels = 6};
    const HfGpt2Config read = Open(json::parse(HfGpt2(config).ConfigJson()), Gpt2Tensors()).config;
    EXPECT_EQ(read.block_size, 7);
    EXPECT_EQ(read.vocab_size, 5);
    EXPECT_EQ(read.padded_vocab_size, 9);
    EXPECT_EQ(read.num_layers, 2);
    EXPECT_EQ(read.num_heads, 3);
    EXPECT_EQ(read.num_channels, 6);
    EXPECT_NE(HfGpt2(config).ConfigJson().find("\"layer_norm_epsilon\": 1e-05"), std::string::npos);
}

TEST_F(HfConfigTest, AConfigOfAnotherModelIsRefused) {
    const std::vector<ConfigChange> changes = {
        {"model_type", "llama", {"model_type", "llama", "gpt2"}},
        {"model_type", nullptr, {"model_type is missing"}},
        {"model_type", 7, {"model_type", "a string"}},
        {"architectures", {"GPT2ForSequenceClassification"}, {"architectures", "GPT2LMHeadModel"}},
        {"architectures", "GPT2LMHeadModel", {"architectures"}},
        {"activation_function", "gelu", {"activation_function", "gelu_new"}},
        {"activation_function", "gelu_pytorch_tanh", {}},
        {"layer_norm_epsilon", 1e-5, {}},
        {"layer_norm_epsilon", 1e-6, {"layer_norm_epsilon", "1e-06", "1e-05"}},
        {"layer_norm_epsilon", "1e-5", {"layer_norm_epsilon"}},
        {"scale_attn_weights", false, {"scale_attn_weights"}},
        {"scale_attn_by_inverse_layer_idx", true, {"scale_attn_by_inverse_layer_idx"}},
        {"add_cross_attention", true, {"add_cross_attention"}},
        {"n_inner", nullptr, {}},
        {"n_inner", 24, {}},
        {"n_inner", 23, {"n_inner", "23", "24"}},
        {"n_layer", 0, {"n_layer", "1 to 10000"}},
        {"n_layer", 10001, {"n_layer", "10001"}},
        {"n_layer", 1, {"\"h.1.attn.c_attn.bias\" is none of the model"}},
        {"n_layer", 3, {"has no tensor h.2."}},
        {"n_layer", -2, {"n_layer", "-2"}},
        {"n_layer", 2.0, {"n_layer", "2.0"}},
        {"n_layer", "2", {"n_layer"}},
        {"n_layer", {2}, {"n_layer"}},
        {"n_head", 4, {"n_head", "does not divide"}},
        {"n_head", 0, {"n_head"}},
        {"n_embd", 18446744073709551615u, {"n_embd"}},
        {"n_embd", 1048575, {"another shape"}},  // 3 heads: divides; nothing of that size is allocated
        {"n_positions", 8, {"wpe.weight", "[7, 6]", "[8, 6]"}},
        {"n_positions", nullptr, {"n_positions is missing"}},
        {"vocab_size", 6, {"wte.weight", "[6, 6]"}},
        {"vocab_size", 16777216, {"vocab_size"}},
        {"padded_vocab_size", 4, {"padded_vocab_size", "5 to"}},
        {"tie_word_embeddings", "yes", {"tie_word_embeddings", "true or false"}},
    };
    for (const ConfigChange& change : changes) {
        SCOPED_TRACE(change.key + " " + change.value.dump());
        json config = Gpt2Config();
        config[change.key] = change.value;
        if (change.parts.empty()) {
            EXPECT_NO_THROW(Open(config, Gpt2Tensors()));
        } else {
            ExpectRefused(config, Gpt2Tensors(), change.parts);
        }
    }
}

TEST_F(HfConfigTest, AConfigThatIsNotOneStrictObjectIsRefused) {
    WriteFolder(path_, Gpt2Config(), Gpt2Tensors());
    const std::string good = Gpt2Config().dump();
    const std::map<std::string, std::string> bad = {
        {"", "not JSON"},
        {"[]", "not an object"},
        {"null", "not an object"},
        {good + "}", "not JSON"},
        {good.substr(0, good.size() - 1), "not JSON"},
        {good.substr(0, good.size() - 1) + ",\"n_head\":1}", "duplicate key \"n_head\""},
        {good.substr(0, good.size() - 1) + ",\"x\":{\"a\":1,\"a\":2}}", "duplicate key \"a\""},
        {good.substr(0, good.size() - 1) + ",\"\xff\":1}", "not JSON"},
        {good.substr(0, good.size() - 1) + ",\"x\":1e999}", "not JSON"},
        {std::string(100000, '['), "nested deeper"},
        {good + std::string(1 << 20, ' '), "too large"},
    };
    for (const auto& [text, part] : bad) {
        SCOPED_TRACE(text.substr(0, 100));
        WriteTextFile(path_ + "/config.json", text);
        ExpectRefusal([&] { OpenHfGpt2(path_); }, {path_ + "/config.json", part});
    }
    std::filesystem::remove(path_ + "/config.json");
    ExpectRefusal([&] { OpenHfGpt2(path_); }, {path_ + "/config.json", "cannot open"});
    std::filesystem::create_directory(path_ + "/config.json");
    ExpectRefusal([&] { OpenHfGpt2(path_); }, {path_ + "/config.json", "regular file"});
}

}  // namespace
}  // namespace infini_train::checkpoint::test
