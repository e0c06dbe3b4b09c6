#include "infini_train/include/checkpoint/hf_export.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/checkpoint/hf_family.h"
#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "infini_train/include/checkpoint/hf_llama.h"
#include "infini_train/include/checkpoint/write_llmc.h"
#include "test/checkpoint/hf_files.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReadTextFile;
using infini_train::test::ReferenceFolders;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;

TensorByName From(const WeightSource& weights) {
    return [&weights](const std::string& name) {
        return Tensor::FromVector(ValuesOf(weights, name), weights.shape(name), MakeCpuDevice());
    };
}

std::set<std::string> FilesIn(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        names.insert(entry.path().filename().string());
    }
    return names;
}

class HfExportTest : public testing::Test {
 protected:
    void ExportGpt2(const std::string& folder, const HfExportOptions& options = {}) {
        ExportHf(folder, HfGpt2(HfConfigOf(gpt2_.header)), gpt2_.weights, options);
    }

    TemporaryFolder folder_;
    std::string reference_ = ReferenceFolders()[0];
    LlmcGpt2File gpt2_ = OpenLlmcGpt2(reference_ + "/gpt2_tiny.bin");
    std::string out_ = folder_.File("out");
};

TEST_F(HfExportTest, Gpt2ComesBackToTheSameBytes) {
    for (const std::string name : {"gpt2_tiny.bin", "gpt2_tiny_bf16.bin"}) {
        const LlmcGpt2File file = OpenLlmcGpt2(reference_ + "/" + name);
        const std::string folder = folder_.File(name + ".hf");
        ExportHf(folder, HfGpt2(HfConfigOf(file.header)), file.weights, {.dtype = file.header.dtype});
        const HfGpt2Folder files = OpenHfGpt2(folder);
        EXPECT_EQ(files.weights->dtype(), file.header.dtype);
        WriteLlmcGpt2(folder_.File(name), LlmcHeaderOf(files.config, files.weights->dtype()), From(*files.weights));
        EXPECT_TRUE(ReadTextFile(folder_.File(name)) == ReadTextFile(reference_ + "/" + name)) << name;
    }
}

TEST_F(HfExportTest, LlamaComesBackToTheSameBytes) {
    for (const std::string name : {"llama_tiny.bin", "llama_tiny_bf16.bin"}) {
        const LlmcLlama3File file = OpenLlmcLlama3(reference_ + "/" + name);
        const std::string folder = folder_.File(name + ".hf");
        ExportHf(folder, HfLlama(HfConfigOf(file.header, 8.0f)), file.weights, {.dtype = file.header.dtype});
        const HfLlamaFolder files = OpenHfLlama(folder);
        const std::string path = folder_.File(name);
        WriteLlmcLlama3(path, LlmcHeaderOf(path, files.config, files.weights->dtype()), From(*files.weights));
        EXPECT_TRUE(ReadTextFile(path) == ReadTextFile(reference_ + "/" + name)) << name;
    }
}

TEST_F(HfExportTest, ATiedLlamaHasNoHeadInTheFolderAndTwoTablesInTheBin) {
    const LlmcLlama3File file = OpenLlmcLlama3(reference_ + "/llama_tiny.bin");
    LlmcLlama3Header header = file.header;
    header.head_is_tied = true;
    const std::string tied = folder_.File("tied.bin");
    WriteLlmcLlama3(tied, header, From(file.weights));
    const LlmcLlama3File tied_file = OpenLlmcLlama3(tied);
    ExportHf(out_, HfLlama(HfConfigOf(tied_file.header, 8.0f)), tied_file.weights, {});
    const HfLlamaFolder files = OpenHfLlama(out_);
    EXPECT_TRUE(files.config.tied_head);
    EXPECT_EQ(ReadTextFile(out_ + "/model.safetensors").find("lm_head"), std::string::npos);
    const std::string again = folder_.File("again.bin");
    WriteLlmcLlama3(again, LlmcHeaderOf(again, files.config, DataType::kFloat32), From(*files.weights));
    EXPECT_TRUE(ReadTextFile(again) == ReadTextFile(tied));
}

TEST_F(HfExportTest, ShardsAreNoLargerThanAskedAndHoldTheSame) {
    ExportGpt2(out_);
    EXPECT_EQ(FilesIn(out_), (std::set<std::string>{"config.json", "model.safetensors"}));
    const std::string sharded = folder_.File("sharded/");  // as a shell completes it
    const uint64_t max_shard_bytes = 30000;
    ExportGpt2(sharded, {.max_shard_bytes = max_shard_bytes});
    const std::set<std::string> names = FilesIn(sharded);
    EXPECT_GT(names.size(), 4u);
    EXPECT_TRUE(names.contains("model.safetensors.index.json"));
    EXPECT_FALSE(names.contains("model.safetensors"));
    for (const std::string& name : names) {
        if (name.starts_with("model-")) {
            const WeightFile file = OpenSafetensors(sharded + "/" + name);
            uint64_t size_bytes = 0;
            for (const std::string& tensor : file.names()) {
                size_bytes += static_cast<uint64_t>(NumElements(file.shape(tensor))) * sizeof(float);
            }
            EXPECT_TRUE(size_bytes <= max_shard_bytes || file.names().size() == 1) << name << " " << size_bytes;
        }
    }
    const std::string whole = folder_.File("whole");
    const HfGpt2Folder files = OpenHfGpt2(sharded);
    ExportHf(whole, HfGpt2(files.config), *files.weights, {});
    EXPECT_TRUE(ReadTextFile(whole + "/model.safetensors") == ReadTextFile(out_ + "/model.safetensors"));
    EXPECT_EQ(ReadTextFile(whole + "/config.json"), ReadTextFile(out_ + "/config.json"));
}

TEST_F(HfExportTest, TheConfigSaysTheDtypeOfTheTensors) {
    ExportGpt2(out_, {.dtype = DataType::kBFloat16});
    EXPECT_EQ(nlohmann::json::parse(ReadTextFile(out_ + "/config.json")).at("torch_dtype"), "bfloat16");
    EXPECT_EQ(OpenHfGpt2(out_).weights->dtype(), DataType::kBFloat16);
}

TEST_F(HfExportTest, OnlyANewOrEmptyFolderIsWritten) {
    std::filesystem::create_directory(out_);
    ExportGpt2(out_);
    ExpectRefusal([&] { ExportGpt2(out_); }, {out_, "is there already"});
    WriteTextFile(folder_.File("file"), "x");
    ExpectRefusal([&] { ExportGpt2(folder_.File("file")); }, {"file", "is there already"});
    ExpectRefusal([&] { ExportGpt2(folder_.File("no/such")); }, {"no/such", "cannot make the folder"});
    EXPECT_EQ(FilesIn(folder_.File("")), (std::set<std::string>{"file", "out"}));
}

TEST_F(HfExportTest, AFullDiskLeavesNothing) {
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit small = {.rlim_cur = 20000, .rlim_max = limit.rlim_max};
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    try {
        ExportGpt2(out_);
    } catch (const Error& error) {
        message = error.what();
    }
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    std::signal(SIGXFSZ, old_handler);
    EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
    EXPECT_TRUE(FilesIn(folder_.File("")).empty());
}

TEST_F(HfExportTest, WeightsOfAnotherModelAreRefused) {
    HfGpt2Config config = HfConfigOf(gpt2_.header);
    config.num_channels = 64;
    ExpectRefusal([&] { ExportHf(out_, HfGpt2(config), gpt2_.weights, {}); }, {"gpt2_tiny.bin", "another shape"});
    config = HfConfigOf(gpt2_.header);
    ++config.num_layers;
    ExpectRefusal([&] { ExportHf(out_, HfGpt2(config), gpt2_.weights, {}); }, {"gpt2_tiny.bin", "h.3."});
    EXPECT_TRUE(FilesIn(folder_.File("")).empty());
}

TEST_F(HfExportTest, ABinCannotHoldEveryScalingOfTheRotaryFrequencies) {
    HfLlamaConfig config = HfConfigOf(OpenLlmcLlama3(reference_ + "/llama_tiny.bin").header, 8.0f);
    EXPECT_FALSE(LlmcHeaderOf(out_, config, DataType::kFloat32).use_scaled_rope);
    config.rope_scaling = {.factor = 32.0f};
    EXPECT_TRUE(LlmcHeaderOf(out_, config, DataType::kFloat32).use_scaled_rope);
    const std::vector<HfRopeScaling> unknown = {
        {.low_frequency_factor = 2.0f}, {.high_frequency_factor = 8.0f}, {.original_positions = 4096}};
    for (const HfRopeScaling& scaling : unknown) {
        config.rope_scaling = scaling;
        ExpectRefusal([&] { LlmcHeaderOf(out_, config, DataType::kFloat32); }, {out_, "cannot store this scaling"});
    }
}

TEST_F(HfExportTest, TheFamilyIsKnownByTheMagicOrTheModelType) {
    EXPECT_EQ(FamilyOf(reference_ + "/gpt2_tiny.bin"), ModelFamily::kGpt2);
    EXPECT_EQ(FamilyOf(reference_ + "/llama_tiny.bin"), ModelFamily::kLlama3);
    ExportGpt2(out_);
    EXPECT_EQ(FamilyOf(out_), ModelFamily::kGpt2);
    WriteTextFile(out_ + "/config.json", R"({"model_type": "llama"})");
    EXPECT_EQ(FamilyOf(out_), ModelFamily::kLlama3);
    WriteTextFile(out_ + "/config.json", R"({"model_type": "bert"})");
    ExpectRefusal([&] { FamilyOf(out_); }, {"config.json", "bert", "gpt2"});
    ExpectRefusal([&] { FamilyOf(reference_ + "/text_u16.bin"); }, {"text_u16.bin", "20240520", "20240803"});
    ExpectRefusal([&] { FamilyOf(folder_.File("nothing")); }, {"nothing", "cannot open"});
}

}  // namespace
}  // namespace infini_train::checkpoint::test
