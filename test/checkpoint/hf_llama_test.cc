#include "infini_train/include/checkpoint/hf_llama.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "test/checkpoint/hf_files.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReferenceFolders;
using infini_train::test::TemporaryFolder;
using nlohmann::json;

constexpr int64_t kHeadDim = 6;
constexpr int64_t kChannels = 4 * kHeadDim;  // 4 heads, 2 of keys and values
constexpr int64_t kHidden = 10;

json Config() {
    return {{"model_type", "llama"},
            {"architectures", {"LlamaForCausalLM"}},
            {"vocab_size", 5},
            {"hidden_size", kChannels},
            {"intermediate_size", kHidden},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"max_position_embeddings", 7},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 5000.0},
            {"tie_word_embeddings", false}};
}

json With(json config, const std::string& key, const json& value) {
    config[key] = value;
    return config;
}

json Llama31Scaling() {
    return {{"rope_type", "llama3"},
            {"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}};
}

HandTensors Tensors() {
    std::map<std::string, Shape> shapes = {{"model.embed_tokens.weight", {5, kChannels}},
                                           {"model.norm.weight", {kChannels}},
                                           {"lm_head.weight", {5, kChannels}}};
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
        const std::map<std::string, Shape> more = {
            {"input_layernorm.weight", {kChannels}},
            {"self_attn.q_proj.weight", {4 * kHeadDim, kChannels}},
            {"self_attn.k_proj.weight", {2 * kHeadDim, kChannels}},
            {"self_attn.v_proj.weight", {2 * kHeadDim, kChannels}},
            {"self_attn.o_proj.weight", {kChannels, kChannels}},
            {"post_attention_layernorm.weight", {kChannels}},
            {"mlp.up_proj.weight", {kHidden, kChannels}},
            {"mlp.gate_proj.weight", {kHidden, kChannels}},
            {"mlp.down_proj.weight", {kChannels, kHidden}},
        };
        for (const auto& [name, shape] : more) {
            shapes[layer + name] = shape;
        }
    }
    return CountingTensors(shapes);
}

class HfLlamaTest : public testing::Test {
 protected:
    HfLlamaFolder Open(const json& config, const HandTensors& tensors) {
        WriteFolder(path_, config, tensors);
        return OpenHfLlama(path_);
    }
    void ExpectRefused(const json& config, const HandTensors& tensors, std::vector<std::string> parts) {
        parts.push_back(path_);
        ExpectRefusal([&] { Open(config, tensors); }, parts);
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.File("model");
};

TEST_F(HfLlamaTest, TheConfigSaysWhatTheModelIs) {
    const HfLlamaConfig config = Open(Config(), Tensors()).config;
    EXPECT_EQ(config.block_size, 7);
    EXPECT_EQ(config.vocab_size, 5);
    EXPECT_EQ(config.num_layers, 2);
    EXPECT_EQ(config.num_heads, 4);
    EXPECT_EQ(config.num_kv_heads, 2);
    EXPECT_EQ(config.num_channels, kChannels);
    EXPECT_EQ(config.hidden_size, kHidden);
    EXPECT_EQ(config.norm_eps, 1e-6f);
    EXPECT_EQ(config.rope_theta, 5000.0f);
    EXPECT_FALSE(config.rope_scaling.has_value());
    EXPECT_FALSE(config.tied_head);
}

TEST_F(HfLlamaTest, RowsOfQueriesAndKeysAreInterleavedAndThoseOfValuesAreNot) {
    const HandTensors tensors = Tensors();
    const HfLlamaFolder files = Open(Config(), tensors);
    for (const std::string layer : {"0", "1"}) {
        const std::string name = "h." + layer + ".attn.c_attn.weight";
        const std::string theirs = "model.layers." + layer + ".self_attn.";
        std::vector<float> wanted;
        const auto add_row = [&](const HandTensor& tensor, int64_t row) {
            const auto first = tensor.values.begin() + row * kChannels;
            wanted.insert(wanted.end(), first, first + kChannels);
        };
        for (const std::string matrix : {"q_proj.weight", "k_proj.weight"}) {
            const HandTensor& tensor = tensors.at(theirs + matrix);
            for (int64_t head = 0; head < tensor.shape[0] / kHeadDim; ++head) {
                for (const int64_t row : {0, 3, 1, 4, 2, 5}) {
                    add_row(tensor, head * kHeadDim + row);
                }
            }
        }
        for (int64_t row = 0; row < 2 * kHeadDim; ++row) {
            add_row(tensors.at(theirs + "v_proj.weight"), row);
        }
        EXPECT_EQ(files.weights->shape(name), (Shape{8 * kHeadDim, kChannels}));
        EXPECT_EQ(ValuesOf(*files.weights, name), wanted);
        ExpectRowsToBeTheWhole(*files.weights, name);
    }
}

TEST_F(HfLlamaTest, EveryOtherTensorIsAsItIsInTheFile) {
    const HandTensors tensors = Tensors();
    const HfLlamaFolder files = Open(Config(), tensors);
    const std::map<std::string, std::string> names = {
        {"wte.weight", "model.embed_tokens.weight"},
        {"ln_f.weight", "model.norm.weight"},
        {"lm_head.weight", "lm_head.weight"},
        {"h.1.ln_1.weight", "model.layers.1.input_layernorm.weight"},
        {"h.1.attn.c_proj.weight", "model.layers.1.self_attn.o_proj.weight"},
        {"h.1.ln_2.weight", "model.layers.1.post_attention_layernorm.weight"},
        {"h.1.mlp.c_fc.weight", "model.layers.1.mlp.up_proj.weight"},
        {"h.1.mlp.c_fc2.weight", "model.layers.1.mlp.gate_proj.weight"},
        {"h.1.mlp.c_proj.weight", "model.layers.1.mlp.down_proj.weight"},
    };
    for (const auto& [ours, theirs] : names) {
        EXPECT_EQ(files.weights->shape(ours), tensors.at(theirs).shape) << ours;
        EXPECT_EQ(ValuesOf(*files.weights, ours), tensors.at(theirs).values) << ours;
    }
}

TEST_F(HfLlamaTest, AHeadMayBeTiedOrItsOwnButNeverMissing) {
    HandTensors different = Tensors();
    HandTensors both = different;
    both["lm_head.weight"] = both["model.embed_tokens.weight"];
    HandTensors embedding = both;
    embedding.erase("lm_head.weight");
    HandTensors head = both;
    head.erase("model.embed_tokens.weight");
    const std::vector<float> table = both.at("lm_head.weight").values;
    json silent = Config();
    silent.erase("tie_word_embeddings");
    const json tied = With(Config(), "tie_word_embeddings", true);
    for (const json& config : {tied, silent}) {
        for (const HandTensors& tensors : {embedding, head}) {
            const HfLlamaFolder files = Open(config, tensors);
            EXPECT_TRUE(files.config.tied_head);
            EXPECT_FALSE(files.weights->Contains("lm_head.weight"));
            EXPECT_EQ(ValuesOf(*files.weights, "wte.weight"), table);
        }
    }
    EXPECT_TRUE(Open(tied, both).config.tied_head);
    ExpectRefused(tied, different, {"differ", "tie_word_embeddings true"});
    for (const json& config : {Config(), silent}) {
        for (const HandTensors& tensors : {both, different}) {
            const HfLlamaFolder files = Open(config, tensors);
            EXPECT_FALSE(files.config.tied_head);
            EXPECT_EQ(ValuesOf(*files.weights, "lm_head.weight"), tensors.at("lm_head.weight").values);
        }
    }
    ExpectRefused(Config(), embedding, {"has no tensor lm_head.weight", "tie_word_embeddings false"});
    ExpectRefused(Config(), head, {"has no tensor model.embed_tokens.weight"});
}

TEST_F(HfLlamaTest, RotarySettingsAreReadInBothSpellings) {
    json newer = Config();
    newer.erase("rope_theta");
    EXPECT_EQ(Open(newer, Tensors()).config.rope_theta, 10000.0f);
    newer["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 2000.0}};
    EXPECT_EQ(Open(newer, Tensors()).config.rope_theta, 2000.0f);
    EXPECT_FALSE(Open(newer, Tensors()).config.rope_scaling.has_value());
    json scaling = Llama31Scaling();
    scaling["factor"] = 32;
    scaling["low_freq_factor"] = 1.5;
    scaling["high_freq_factor"] = 3.25;
    scaling["original_max_position_embeddings"] = 64;
    newer["rope_parameters"] = scaling;
    newer["rope_parameters"]["rope_theta"] = 3000;
    json older = With(Config(), "rope_scaling", scaling);
    older["rope_theta"] = 3000;
    json oldest = older;
    oldest["rope_scaling"].erase("rope_type");
    oldest["rope_scaling"]["type"] = "llama3";
    json both = older;
    both["rope_parameters"] = newer["rope_parameters"];
    for (const json& config : {newer, older, oldest, both}) {
        const HfLlamaConfig read = Open(config, Tensors()).config;
        EXPECT_EQ(read.rope_theta, 3000.0f);
        EXPECT_EQ(read.rope_scaling, (HfRopeScaling{.factor = 32.0f,
                                                    .low_frequency_factor = 1.5f,
                                                    .high_frequency_factor = 3.25f,
                                                    .original_positions = 64}));
    }
    ExpectRefused(With(both, "rope_theta", 2000), Tensors(), {"rope_parameters contradicts"});
    both["rope_scaling"]["factor"] = 31;
    ExpectRefused(both, Tensors(), {"rope_parameters contradicts"});
}

TEST_F(HfLlamaTest, ScalingOfAnotherKindIsRefused) {
    const std::vector<ConfigChange> changes = {
        {"rope_type", "linear", {"rope_scaling.rope_type", "linear", "llama3"}},
        {"rope_type", "yarn", {"rope_scaling.rope_type"}},
        {"rope_type", "default", {"rope_scaling.factor", "8.0"}},
        {"rope_type", nullptr, {"rope_scaling.factor"}},
        {"factor", nullptr, {"rope_scaling.factor is missing"}},
        {"factor", 0.5, {"rope_scaling.factor"}},
        {"factor", "8", {"rope_scaling.factor"}},
        {"low_freq_factor", nullptr, {"rope_scaling.low_freq_factor is missing"}},
        {"low_freq_factor", 0.0, {"rope_scaling.low_freq_factor"}},
        {"high_freq_factor", nullptr, {"rope_scaling.high_freq_factor is missing"}},
        {"high_freq_factor", 1.0, {"rope_scaling.high_freq_factor", "more than low_freq_factor 1"}},
        {"original_max_position_embeddings", nullptr, {"original_max_position_embeddings is missing"}},
        {"original_max_position_embeddings", 0, {"original_max_position_embeddings"}},
    };
    for (const ConfigChange& change : changes) {
        SCOPED_TRACE(change.key + " " + change.value.dump());
        ExpectRefused(With(Config(), "rope_scaling", With(Llama31Scaling(), change.key, change.value)), Tensors(),
                      change.parts);
    }
}

TEST_F(HfLlamaTest, AConfigOfAnotherModelIsRefused) {
    const std::vector<ConfigChange> changes = {
        {"model_type", "mistral", {"model_type", "mistral", "llama"}},
        {"architectures", json::array({"MistralForCausalLM"}), {"architectures"}},
        {"architectures", nullptr, {}},
        {"hidden_act", "silu", {}},
        {"hidden_act", "gelu", {"hidden_act"}},
        {"attention_bias", true, {"attention_bias"}},
        {"mlp_bias", true, {"mlp_bias"}},
        {"partial_rotary_factor", 0.5, {"partial_rotary_factor"}},
        {"rope_parameters", json{{"partial_rotary_factor", 0.5}}, {"rope_parameters.partial_rotary_factor"}},
        {"rope_parameters", 5, {"rope_parameters"}},
        {"rope_theta", 0.0, {"rope_theta"}},
        {"rope_theta", "5000", {"rope_theta"}},
        {"rms_norm_eps", 0.0, {"rms_norm_eps"}},
        {"rms_norm_eps", nullptr, {"rms_norm_eps is missing"}},
        {"head_dim", kHeadDim, {}},
        {"head_dim", 8, {"head_dim", "8", "6"}},
        {"num_attention_heads", 5, {"num_attention_heads", "5", "24"}},
        {"num_attention_heads", 8, {"num_attention_heads", "odd"}},
        {"num_key_value_heads", 3, {"num_key_value_heads", "3", "num_attention_heads 4"}},
        {"num_key_value_heads", 0, {"num_key_value_heads"}},
        {"num_key_value_heads", -2, {"num_key_value_heads"}},
        {"num_key_value_heads", nullptr, {"k_proj", "[12, 24]", "[24, 24]"}},  // as many as there are heads
        {"intermediate_size", 11, {"mlp.up_proj.weight", "[10, 24]", "[11, 24]"}},
        {"intermediate_size", 1ull << 40, {"intermediate_size"}},
        {"hidden_size", 1048568, {"another shape"}},  // nothing of that size is allocated
        {"num_hidden_layers", 1, {"model.layers.1.", "is none of the model"}},
        {"num_hidden_layers", 10000, {"has no tensor model.layers.2."}},
        {"max_position_embeddings", 0, {"max_position_embeddings"}},
        {"vocab_size", 4, {"embed_tokens"}},
    };
    for (const ConfigChange& change : changes) {
        SCOPED_TRACE(change.key + " " + change.value.dump());
        const json config = With(Config(), change.key, change.value);
        if (change.parts.empty()) {
            EXPECT_NO_THROW(Open(config, Tensors()));
        } else {
            ExpectRefused(config, Tensors(), change.parts);
        }
    }
}

TEST_F(HfLlamaTest, TensorsAreExactlyThoseOfTheModel) {
    for (const auto& [name, tensor] : Tensors()) {
        HandTensors tensors = Tensors();
        tensors.erase(name);
        ExpectRefused(Config(), tensors, {"has no tensor " + name});
    }
    HandTensors more = Tensors();
    more["model.layers.0.self_attn.q_proj.bias"] = CountingTensor({kChannels}, 0.0f);
    ExpectRefused(Config(), more, {"q_proj.bias", "is none of the model"});
}

TEST_F(HfLlamaTest, ItsOwnConfigReadsBack) {
    for (const bool is_tied : {false, true}) {
        HfLlamaConfig config = Open(Config(), Tensors()).config;
        config.tied_head = is_tied;
        config.norm_eps = 3e-6f;
        config.rope_theta = 12345.678f;
        if (is_tied) {
            config.rope_scaling = {
                .factor = 3.3f, .low_frequency_factor = 1.1f, .high_frequency_factor = 2.2f, .original_positions = 99};
        }
        HandTensors tensors = Tensors();
        if (is_tied) {
            tensors.erase("lm_head.weight");
        }
        const HfLlamaConfig read = Open(json::parse(HfLlama(config).ConfigJson()), tensors).config;
        EXPECT_EQ(read.block_size, config.block_size);
        EXPECT_EQ(read.vocab_size, config.vocab_size);
        EXPECT_EQ(read.num_layers, config.num_layers);
        EXPECT_EQ(read.num_heads, config.num_heads);
        EXPECT_EQ(read.num_kv_heads, config.num_kv_heads);
        EXPECT_EQ(read.num_channels, config.num_channels);
        EXPECT_EQ(read.hidden_size, config.hidden_size);
        EXPECT_EQ(read.norm_eps, config.norm_eps);
        EXPECT_EQ(read.rope_theta, config.rope_theta);
        EXPECT_EQ(read.rope_scaling, config.rope_scaling);
        EXPECT_EQ(read.tied_head, config.tied_head);
    }
}

TEST_F(HfLlamaTest, ConvertIsTheInverseOfReading) {
    const HandTensors tensors = Tensors();
    const HfLlamaFolder files = Open(Config(), tensors);
    const HfLlama model(files.config);
    size_t num_tensors = 0;
    for (const NamedShape& parameter : model.parameters()) {
        const std::vector<NamedShape> parts = model.TensorsOf(parameter.name);
        for (size_t index = 0; index < parts.size(); ++index) {
            EXPECT_EQ(parts[index].shape, tensors.at(parts[index].name).shape);
            std::vector<float> values(static_cast<size_t>(NumElements(parts[index].shape)));
            model.Convert(parameter.name, index, ValuesOf(*files.weights, parameter.name), values);
            EXPECT_EQ(values, tensors.at(parts[index].name).values) << parts[index].name;
            ++num_tensors;
        }
    }
    EXPECT_EQ(num_tensors, tensors.size());
}

TEST(HfLlamaReference, FoldersHoldTheWeightsOfTheirBins) {
    size_t num_compared = 0;
    for (const std::string& folder : ReferenceFolders()) {
        if (!std::filesystem::exists(folder + "/llama_shakespeare_hf")) {
            continue;
        }
        const LlmcLlama3File file = OpenLlmcLlama3(folder + "/llama_shakespeare.bin");
        const HfLlamaFolder files = OpenHfLlama(folder + "/llama_shakespeare_hf");
        const HfLlama model(files.config);
        for (const NamedShape& parameter : model.parameters()) {
            EXPECT_EQ(ValuesOf(*files.weights, parameter.name), ValuesOf(file.weights, parameter.name))
                << parameter.name;
            ++num_compared;
        }
    }
    if (num_compared == 0) {
        GTEST_SKIP() << "no reference folder has a llama_shakespeare_hf";
    }
}

}  // namespace
}  // namespace infini_train::checkpoint::test
