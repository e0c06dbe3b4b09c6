// Every stage reads from a weight file what the whole model would: the same bytes for the same name.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "example/common/load_weights.h"
#include "example/gpt2/net.h"
#include "example/llama3/net.h"
#include "infini_train/include/checkpoint/write_llmc.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "test/support/random_tensor.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

using Bytes = std::map<std::string, std::string>;  // by name; values, then the float32 master where there is one

void TakeBytes(const Tensor& tensor, std::string* bytes) {
    bytes->append(static_cast<const char*>(tensor.raw_data()), tensor.size_bytes());
}

/// All parameters of a model that is read in so many stages. A name that two stages have must have the same bytes.
template <typename Net, typename Config>
Bytes LoadInStages(const checkpoint::WeightFile& file, const Config& config, int num_stages, DataType dtype) {
    Bytes loaded;
    for (const nn::parallel::LayerRange& layers : nn::parallel::EvenLayout(config.num_layers, num_stages)) {
        Net stage(config, layers, std::make_shared<nn::DropoutPosition>(), MakeCpuDevice());
        LoadWeights(file, stage);
        stage.To(dtype);
        for (const auto& [name, tensor] : stage.NamedParameters()) {
            std::string bytes;
            TakeBytes(*tensor, &bytes);
            if (tensor->master() != nullptr) {
                TakeBytes(*tensor->master(), &bytes);
            }
            const auto [found, is_new] = loaded.try_emplace(name, bytes);
            EXPECT_EQ(found->second, bytes) << name;
        }
    }
    return loaded;
}

template <typename Net, typename Config>
void ExpectSameInAnyNumberOfStages(const checkpoint::WeightFile& file, const Config& config) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const Bytes whole = LoadInStages<Net>(file, config, 1, dtype);
        EXPECT_GT(whole.size(), 10u);
        for (int num_stages = 2; num_stages <= std::min(4, config.num_layers); ++num_stages) {
            EXPECT_EQ(LoadInStages<Net>(file, config, num_stages, dtype), whole) << num_stages << " stages";
        }
    }
}

constexpr int64_t kHeaderBytes = 1024;

// bugs.csv O93: the vocabulary is padded, so wte has more rows in the file than there are tokens; what stands in those
// rows is read by nobody.
TEST(PipelineLoading, OfAGpt2WithAPaddedVocabularyIsTheSameInAnyNumberOfStages) {
    const TemporaryFolder folder;
    const std::string path = folder.File("gpt2.bin");
    const checkpoint::LlmcGpt2Header header = {.block_size = 8,
                                               .vocab_size = 11,
                                               .padded_vocab_size = 128,
                                               .num_layers = 5,
                                               .num_heads = 2,
                                               .num_channels = 6};
    const gpt2::Gpt2Config config = gpt2::ConfigOf(header);
    const Device device = MakeCpuDevice();
    const gpt2::Gpt2 net(config, {.begin = 0, .end = 5, .num_layers = 5}, std::make_shared<nn::DropoutPosition>(),
                         device);
    std::map<std::string, std::shared_ptr<Tensor>> tensors;
    for (const auto& [name, tensor] : net.NamedParameters()) {
        tensors[name] = RandomTensor(tensor->shape(), DataType::kFloat32, device, tensors.size());
    }
    checkpoint::WriteLlmcGpt2(path, header, [&](const std::string& name) { return tensors.at(name); });
    {
        std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(kHeaderBytes + 11 * 6 * 4);
        const std::vector<float> garbage((128 - 11) * 6, std::numeric_limits<float>::quiet_NaN());
        file.write(reinterpret_cast<const char*>(garbage.data()),
                   static_cast<std::streamsize>(garbage.size() * sizeof(float)));
    }
    const checkpoint::LlmcGpt2File file = checkpoint::OpenLlmcGpt2(path);
    ExpectSameInAnyNumberOfStages<gpt2::Gpt2>(file.weights, config);

    float* table = tensors.at("wte.weight")->data<float>();
    std::fill(table + 11 * 6, table + 128 * 6, 0.0f);
    const Bytes loaded = LoadInStages<gpt2::Gpt2>(file.weights, config, 4, DataType::kFloat32);
    EXPECT_EQ(loaded.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
        std::string bytes;
        TakeBytes(*tensor, &bytes);
        EXPECT_EQ(loaded.at(name), bytes) << name;
    }
}

TEST(PipelineLoading, OfTheReferenceModelsIsTheSameInAnyNumberOfStages) {
    const std::string folder = ReferenceFolders()[0];
    for (const std::string name : {"/gpt2_tiny.bin", "/gpt2_tiny_bf16.bin"}) {
        const checkpoint::LlmcGpt2File file = checkpoint::OpenLlmcGpt2(folder + name);
        ExpectSameInAnyNumberOfStages<gpt2::Gpt2>(file.weights, gpt2::ConfigOf(file.header));
    }
    for (const std::string name : {"/llama_tiny.bin", "/llama_tiny_bf16.bin"}) {
        const checkpoint::LlmcLlama3File file = checkpoint::OpenLlmcLlama3(folder + name);
        ExpectSameInAnyNumberOfStages<llama3::Llama3>(file.weights, llama3::ConfigOf(file.header, 1.0f));
    }
}

}  // namespace
}  // namespace infini_train::test
