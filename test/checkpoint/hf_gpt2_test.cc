#include "infini_train/include/checkpoint/hf_gpt2.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "test/checkpoint/hf_files.h"
#include "test/checkpoint/hf_gpt2_files.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReferenceFolders;
using infini_train::test::WriteTextFile;
using nlohmann::json;

TEST_F(HfGpt2Test, EachOfTheFourMatricesOfALayerIsTransposed) {
    const HandTensors tensors = Gpt2Tensors();
    const HfGpt2Folder files = Open(Gpt2Config(), tensors);
    const std::map<std::string, Shape> matrices = {{"attn.c_attn.weight", {18, 6}},
                                                   {"attn.c_proj.weight", {6, 6}},
                                                   {"mlp.c_fc.weight", {24, 6}},
                                                   {"mlp.c_proj.weight", {6, 24}}};
    for (const std::string layer : {"h.0.", "h.1."}) {
        for (const auto& [matrix, shape] : matrices) {
            const std::string name = layer + matrix;
            ExpectElements(*files.weights, name, shape, tensors.at(name).values,
                           [&](int64_t row, int64_t column) { return column * shape[0] + row; });
            ExpectRowsToBeTheWhole(*files.weights, name);
        }
    }
}

TEST_F(HfGpt2Test, EveryOtherTensorIsAsItIsInTheFile) {
    const HandTensors tensors = Gpt2Tensors();
    const HfGpt2Folder files = Open(Gpt2Config(), tensors);
    size_t num_compared = 0;
    for (const auto& [name, tensor] : tensors) {
        if (tensor.shape.size() == 1 || name == "wpe.weight") {
            EXPECT_EQ(files.weights->shape(name), tensor.shape) << name;
            EXPECT_EQ(ValuesOf(*files.weights, name), tensor.values) << name;
            ++num_compared;
        }
    }
    EXPECT_EQ(num_compared, 2 * 8 + 3u);
    EXPECT_FALSE(files.weights->Contains("lm_head.weight"));
    ExpectRefusal([&] { files.weights->shape("h.2.ln_1.weight"); }, {path_, "h.2.ln_1.weight"});
}

TEST_F(HfGpt2Test, RowsAfterTheVocabularyAreZero) {
    json config = Gpt2Config();
    config["padded_vocab_size"] = 8;
    const HandTensors tensors = Gpt2Tensors();
    const HfGpt2Folder files = Open(config, tensors);
    EXPECT_EQ(files.config.padded_vocab_size, 8);
    ASSERT_EQ(files.weights->shape("wte.weight"), (Shape{8, 6}));
    std::vector<float> wanted = tensors.at("wte.weight").values;
    wanted.resize(8 * 6, 0.0f);
    EXPECT_EQ(ValuesOf(*files.weights, "wte.weight"), wanted);
    ExpectRowsToBeTheWhole(*files.weights, "wte.weight");
}

TEST_F(HfGpt2Test, APrefixOnAllNamesOrOnNoneIsTheSame) {
    const HfGpt2Folder without = Open(Gpt2Config(), Gpt2Tensors());
    const std::vector<float> c_fc = ValuesOf(*without.weights, "h.1.mlp.c_fc.weight");
    const HfGpt2Folder with = Open(Gpt2Config(), Gpt2Tensors("transformer."));
    EXPECT_EQ(ValuesOf(*with.weights, "h.1.mlp.c_fc.weight"), c_fc);
    HandTensors mixed = Gpt2Tensors("transformer.");
    mixed["h.1.ln_1.bias"] = mixed["transformer.h.1.ln_1.bias"];
    ExpectRefused(Gpt2Config(), mixed, {"\"h.1.ln_1.bias\" is none of the model"});
    mixed.erase("transformer.h.1.ln_1.bias");
    ExpectRefused(Gpt2Config(), mixed, {"has no tensor transformer.h.1.ln_1.bias"});
}

TEST_F(HfGpt2Test, MaskBuffersAreLeftOutAndNothingElseIs) {
    HandTensors tensors = Gpt2Tensors();
    tensors["h.0.attn.bias"] = CountingTensor({1, 1, 7, 7}, 0.0f);
    tensors["h.1.attn.masked_bias"] = CountingTensor({}, -1e4f);
    EXPECT_EQ(ValuesOf(*Open(Gpt2Config(), tensors).weights, "h.0.attn.c_attn.bias"),
              Gpt2Tensors().at("h.0.attn.c_attn.bias").values);
    for (const char* name : {"h.0.attn.bias2", "h.0.attn.rotary.inv_freq", "score.weight", ""}) {
        HandTensors more = Gpt2Tensors();
        more[name] = CountingTensor({1}, 0.0f);
        ExpectRefused(Gpt2Config(), more, {"is none of the model", name});
    }
}

TEST_F(HfGpt2Test, TheHeadIsTheEmbeddingUnderEitherName) {
    const std::vector<float> table = Gpt2Tensors().at("wte.weight").values;
    HandTensors both = Gpt2Tensors();
    both["lm_head.weight"] = both["wte.weight"];
    HandTensors head = both;
    head.erase("wte.weight");
    HandTensors different = both;
    different["lm_head.weight"].values.back() += 1.0f;
    for (const HandTensors& tensors : {both, head}) {
        std::vector<float> values = ValuesOf(*Open(Gpt2Config(), tensors).weights, "wte.weight");
        values.resize(table.size());
        EXPECT_EQ(values, table);
    }
    ExpectRefused(Gpt2Config(), different, {"wte.weight and lm_head.weight differ"});
    json config = Gpt2Config();
    config["tie_word_embeddings"] = false;
    EXPECT_FALSE(Open(config, both).weights->Contains("lm_head.weight"));
    ExpectRefused(config, different, {"wte.weight and lm_head.weight differ"});
    ExpectRefused(config, Gpt2Tensors(), {"has no tensor lm_head.weight", "tie_word_embeddings false"});
    ExpectRefused(config, head, {"has no tensor wte.weight"});
    head.erase("lm_head.weight");
    ExpectRefused(Gpt2Config(), head, {"has no tensor wte.weight"});
    HandTensors taller = both;
    taller["lm_head.weight"] = CountingTensor({6, 6}, 1.0f);
    ExpectRefused(Gpt2Config(), taller, {"differ"});
}

TEST_F(HfGpt2Test, TheHeadIsComparedToItsLastRow) {
    constexpr int64_t kRows = 30000;  // more than are compared at once
    HandTensors tensors = Gpt2Tensors();
    tensors["wte.weight"] = CountingTensor({kRows, kChannels}, 1.0f);
    tensors["lm_head.weight"] = tensors["wte.weight"];
    json config = Gpt2Config();
    config["vocab_size"] = kRows;
    EXPECT_EQ(Open(config, tensors).config.padded_vocab_size, 30080);
    tensors["lm_head.weight"].values.back() = 0.0f;
    ExpectRefused(config, tensors, {"differ"});
}

TEST_F(HfGpt2Test, ShardsAreTheWhole) {
    const HfGpt2Folder whole = Open(Gpt2Config(), Gpt2Tensors());
    const std::string sharded_path = folder_.File("sharded");
    WriteShardedFolder(sharded_path, Gpt2Config(), Gpt2Tensors());
    const HfGpt2Folder sharded = OpenHfGpt2(sharded_path);
    const HfGpt2 model(whole.config);
    for (const NamedShape& parameter : model.parameters()) {
        EXPECT_EQ(ValuesOf(*sharded.weights, parameter.name), ValuesOf(*whole.weights, parameter.name))
            << parameter.name;
    }
    std::filesystem::remove(sharded_path + "/part-3.safetensors");
    ExpectRefusal([&] { OpenHfGpt2(sharded_path); }, {"part-3.safetensors"});
    std::filesystem::remove(sharded_path + "/model.safetensors.index.json");
    ExpectRefusal([&] { OpenHfGpt2(sharded_path); }, {sharded_path, "model.safetensors"});
}

TEST_F(HfGpt2Test, ShardsLieInTheFolder) {
    std::filesystem::create_directories(path_);
    const std::string outside = folder_.File("outside.safetensors");
    WriteTextFile(outside, SafetensorsOf(Gpt2Tensors()));
    std::filesystem::create_symlink(outside, path_ + "/link.safetensors");
    WriteTextFile(path_ + "/config.json", Gpt2Config().dump());
    for (const std::string& name : {std::string("../outside.safetensors"), outside, std::string("link.safetensors")}) {
        json map;
        size_t total_size = 0;
        for (const auto& [tensor, values] : Gpt2Tensors()) {
            map[tensor] = name;
            total_size += values.values.size() * sizeof(float);
        }
        const json index = {{"metadata", {{"total_size", total_size}}}, {"weight_map", map}};
        WriteTextFile(path_ + "/model.safetensors.index.json", index.dump());
        ExpectRefusal([&] { OpenHfGpt2(path_); }, {"model.safetensors.index.json", "out of the folder"});
    }
}

TEST_F(HfGpt2Test, TensorsAreExactlyThoseOfTheModel) {
    for (const auto& [name, tensor] : Gpt2Tensors()) {
        HandTensors tensors = Gpt2Tensors();
        tensors.erase(name);
        ExpectRefused(Gpt2Config(), tensors, {"has no tensor " + name});
        Shape shape = tensor.shape;
        ++shape[0];
        tensors[name] = CountingTensor(shape, 1.0f);
        ExpectRefused(Gpt2Config(), tensors, {name, ToString(shape), ToString(tensor.shape)});
    }
}

TEST_F(HfGpt2Test, AFlippedByteIsRefusedOrDoesNoHarm) {
    WriteFolder(path_, Gpt2Config(), Gpt2Tensors());
    const size_t header_bytes = SafetensorsOf(Gpt2Tensors()).find("}}") + 2;
    const auto read_all = [&] {
        const HfGpt2Folder files = OpenHfGpt2(path_);
        const HfGpt2 model(files.config);
        for (const NamedShape& parameter : model.parameters()) {
            ValuesOf(*files.weights, parameter.name);
        }
    };
    EXPECT_GE(NumRefusedFlips(path_ + "/config.json", Gpt2Config().dump().size(), 1000, read_all), 500);
    EXPECT_GE(NumRefusedFlips(path_ + "/model.safetensors", header_bytes, 1000, read_all), 900);
    EXPECT_NO_THROW(read_all());
}

TEST_F(HfGpt2Test, ConvertIsTheInverseOfReading) {
    json config = Gpt2Config();
    config["padded_vocab_size"] = 11;
    const HandTensors tensors = Gpt2Tensors();
    const HfGpt2Folder files = Open(config, tensors);
    const HfGpt2 model(files.config);
    EXPECT_EQ(model.num_layers(), 2);
    size_t num_tensors = 0;
    for (const NamedShape& parameter : model.parameters()) {
        EXPECT_EQ(files.weights->shape(parameter.name), parameter.shape);
        ASSERT_EQ(model.TensorsOf(parameter.name).size(), 1u);
        const NamedShape tensor = model.TensorsOf(parameter.name)[0];
        EXPECT_EQ(tensor.shape, tensors.at(tensor.name).shape);
        std::vector<float> values(static_cast<size_t>(NumElements(tensor.shape)));
        model.Convert(parameter.name, 0, ValuesOf(*files.weights, parameter.name), values);
        EXPECT_EQ(values, tensors.at(tensor.name).values) << tensor.name;
        ++num_tensors;
    }
    EXPECT_EQ(num_tensors, tensors.size());
}

TEST_F(HfGpt2Test, LargeMatricesAreTransposedInBlocksThatFit) {
    // 4 c and 3 c beyond a tile of rows, and multiples of no block.
    constexpr int64_t c = 70;
    HandTensors tensors;
    for (const auto& [name, tensor] : Gpt2Tensors()) {
        Shape shape = tensor.shape;
        for (int64_t& extent : shape) {
            extent = extent % kChannels == 0 ? extent / kChannels * c : extent;
        }
        tensors[name] = CountingTensor(shape, 1.0f);
    }
    json config = Gpt2Config();
    config["n_embd"] = c;
    config["n_head"] = 7;
    const HfGpt2Folder files = Open(config, tensors);
    const HfGpt2 model(files.config);
    const std::map<std::string, int64_t> num_rows = {{"h.1.attn.c_attn.weight", 3 * c}, {"h.1.mlp.c_proj.weight", c}};
    for (const auto& [name, rows] : num_rows) {
        ExpectElements(*files.weights, name, files.weights->shape(name), tensors.at(name).values,
                       [rows = rows](int64_t row, int64_t column) { return column * rows + row; });
        const std::vector<float> whole = ValuesOf(*files.weights, name);
        const int64_t row_size = files.weights->shape(name)[1];
        EXPECT_EQ(RowsOf(*files.weights, name, 33, 66),
                  std::vector<float>(whole.begin() + 33 * row_size, whole.begin() + 66 * row_size));
        std::vector<float> back(tensors.at(name).values.size());
        model.Convert(name, 0, whole, back);
        EXPECT_EQ(back, tensors.at(name).values);
    }
}

TEST(HfGpt2Reference, FoldersHoldTheWeightsOfTheirBins) {
    size_t num_compared = 0;
    for (const std::string& folder : ReferenceFolders()) {
        if (!std::filesystem::exists(folder + "/gpt2_tiny_hf")) {
            continue;
        }
        const LlmcGpt2File file = OpenLlmcGpt2(folder + "/gpt2_tiny.bin");
        const HfGpt2Folder files = OpenHfGpt2(folder + "/gpt2_tiny_hf");
        EXPECT_EQ(files.config.padded_vocab_size, file.header.padded_vocab_size);
        const HfGpt2 model(files.config);
        for (const NamedShape& parameter : model.parameters()) {
            EXPECT_EQ(ValuesOf(*files.weights, parameter.name), ValuesOf(file.weights, parameter.name))
                << parameter.name;
            ++num_compared;
        }
    }
    if (num_compared == 0) {
        GTEST_SKIP() << "no reference folder has a gpt2_tiny_hf";
    }
}

}  // namespace
}  // namespace infini_train::checkpoint::test
