#include "infini_train/include/checkpoint/write_llmc.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/core/random.h"
#include "infini_train/src/checkpoint/llmc_layout.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReadTextFile;
using infini_train::test::ReferenceFolders;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;

const LlmcGpt2Header kGpt2 = {
    .block_size = 6, .vocab_size = 5, .padded_vocab_size = 8, .num_layers = 2, .num_heads = 2, .num_channels = 4};
const LlmcLlama3Header kLlama3 = {.block_size = 6,
                                  .vocab_size = 7,
                                  .num_layers = 2,
                                  .num_heads = 4,
                                  .num_kv_heads = 2,
                                  .num_channels = 8,
                                  .hidden_size = 20,
                                  .rope_theta = 10000.0f};

using TensorMap = std::map<std::string, std::shared_ptr<Tensor>>;

TensorMap RandomTensors(const LlmcLayout& layout) {
    const Device device = MakeCpuDevice();
    TensorMap tensors;
    for (const PlacedTensor& placed : Place(layout, DataType::kFloat32, 0)) {
        auto tensor = Tensor::Empty(placed.entry.shape, DataType::kFloat32, device);
        for (int64_t i = 0; i < tensor->num_elements(); ++i) {
            tensor->data<float>()[i] =
                static_cast<float>(Normal({.seed = 1, .stream = StreamOf(placed.name)}, static_cast<uint64_t>(i)));
        }
        tensors[placed.name] = tensor;
    }
    return tensors;
}

TensorByName From(const TensorMap& tensors) {
    return [&tensors](const std::string& name) { return tensors.at(name); };
}

void ExpectHolds(const WeightFile& file, const TensorMap& tensors, DataType dtype, size_t num_padding) {
    EXPECT_EQ(file.dtype(), dtype);
    for (const auto& [name, tensor] : tensors) {
        EXPECT_EQ(file.shape(name), tensor->shape());
        std::vector<float> wanted = tensor->ToVector<float>();
        for (float& value : wanted) {
            value = dtype == DataType::kBFloat16 ? static_cast<float>(BFloat16(value)) : value;
        }
        if (name == "wte.weight") {
            std::fill(wanted.end() - static_cast<std::ptrdiff_t>(num_padding), wanted.end(), 0.0f);
        }
        EXPECT_EQ(Values(file, name), wanted) << name;
    }
}

class WriteLlmc : public testing::Test {
 protected:
    std::vector<std::string> FilesInFolder() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(folder_.File(""))) {
            names.push_back(entry.path().filename().string());
        }
        return names;
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.File("weights.bin");
    TensorMap gpt2_ = RandomTensors(Gpt2Layout(kGpt2));
    TensorMap llama3_ = RandomTensors(Llama3Layout(kLlama3));
};

TEST_F(WriteLlmc, Gpt2ReadsBackExactlyOrRounded) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        LlmcGpt2Header header = kGpt2;
        header.dtype = dtype;
        WriteLlmcGpt2(path_, header, From(gpt2_));
        const LlmcGpt2File file = OpenLlmcGpt2(path_);
        EXPECT_EQ(file.header.block_size, 6);
        EXPECT_EQ(file.header.vocab_size, 5);
        EXPECT_EQ(file.header.padded_vocab_size, 8);
        EXPECT_EQ(file.header.num_layers, 2);
        EXPECT_EQ(file.header.num_heads, 2);
        EXPECT_EQ(file.header.num_channels, 4);
        EXPECT_EQ(file.header.dtype, dtype);
        ExpectHolds(file.weights, gpt2_, dtype, 3 * 4);
        EXPECT_EQ(FilesInFolder(), (std::vector<std::string>{"weights.bin"}));
        const std::string bytes = ReadTextFile(path_);  // the padding rows are zero in the file, too
        const size_t width = SizeOf(dtype);
        EXPECT_EQ(bytes.substr(1024 + 5 * 4 * width, 3 * 4 * width), std::string(3 * 4 * width, '\0'));
    }
}

TEST_F(WriteLlmc, Llama3ReadsBackExactlyOrRounded) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        LlmcLlama3Header header = kLlama3;
        header.dtype = dtype;
        header.use_scaled_rope = dtype == DataType::kBFloat16;
        WriteLlmcLlama3(path_, header, From(llama3_));
        const LlmcLlama3File file = OpenLlmcLlama3(path_);
        EXPECT_EQ(file.header.block_size, 6);
        EXPECT_EQ(file.header.vocab_size, 7);
        EXPECT_EQ(file.header.num_layers, 2);
        EXPECT_EQ(file.header.num_heads, 4);
        EXPECT_EQ(file.header.num_kv_heads, 2);
        EXPECT_EQ(file.header.num_channels, 8);
        EXPECT_EQ(file.header.hidden_size, 20);
        EXPECT_EQ(file.header.rope_theta, 10000.0f);
        EXPECT_EQ(file.header.use_scaled_rope, header.use_scaled_rope);
        EXPECT_FALSE(file.header.head_is_tied);
        ExpectHolds(file.weights, llama3_, dtype, 0);
    }
}

TEST_F(WriteLlmc, ATiedLlama3HasItsEmbeddingTwice) {
    LlmcLlama3Header header = kLlama3;
    header.head_is_tied = true;
    llama3_.erase("lm_head.weight");
    WriteLlmcLlama3(path_, header, From(llama3_));
    const LlmcLlama3File file = OpenLlmcLlama3(path_);
    EXPECT_TRUE(file.header.head_is_tied);
    ExpectHolds(file.weights, llama3_, DataType::kFloat32, 0);
    EXPECT_EQ(Values(file.weights, "lm_head.weight"), Values(file.weights, "wte.weight"));
}

TEST_F(WriteLlmc, AnyWidthOfTheMlpReadsBack) {
    LlmcLlama3Header header = kLlama3;
    for (const int64_t width : {1, 7, 21, 512}) {  // 512: wider than any multiplier in a header can say
        header.hidden_size = width;
        const TensorMap tensors = RandomTensors(Llama3Layout(header));
        WriteLlmcLlama3(path_, header, From(tensors));
        EXPECT_EQ(OpenLlmcLlama3(path_).header.hidden_size, width);
    }
}

TEST_F(WriteLlmc, RefusesWhatTheReadersWould) {
    const auto refuse_gpt2 = [&](LlmcGpt2Header header, const std::vector<std::string>& parts) {
        ExpectRefusal([&] { WriteLlmcGpt2(path_, header, From(gpt2_)); }, parts);
    };
    LlmcGpt2Header gpt2 = kGpt2;
    gpt2.num_heads = 3;
    refuse_gpt2(gpt2, {path_, "num_heads 3"});
    gpt2 = kGpt2;
    gpt2.vocab_size = (int64_t{1} << 32) + 5;  // not 5
    refuse_gpt2(gpt2, {path_, "vocab_size"});
    const auto refuse_llama3 = [&](LlmcLlama3Header header, const std::vector<std::string>& parts) {
        ExpectRefusal([&] { WriteLlmcLlama3(path_, header, From(llama3_)); }, parts);
    };
    LlmcLlama3Header llama3 = kLlama3;
    llama3.norm_eps = 1e-6f;
    refuse_llama3(llama3, {path_, "norm_eps", "1e-06"});
    llama3 = kLlama3;
    llama3.rope_theta = 10000.5f;
    refuse_llama3(llama3, {path_, "rope_theta"});
    llama3.rope_theta = 500.0f;
    refuse_llama3(llama3, {path_, "rope_theta"});
    llama3 = kLlama3;
    llama3.hidden_size = 0;
    refuse_llama3(llama3, {path_, "size"});
    llama3 = kLlama3;
    llama3.num_heads = 0;
    refuse_llama3(llama3, {path_, "num_heads"});
    EXPECT_TRUE(FilesInFolder().empty());
}

TEST_F(WriteLlmc, LeavesTheOldFileWhenItFails) {
    WriteTextFile(path_, "old");
    int num_asked = 0;
    const auto fail = [&](const std::string& name) {
        if (++num_asked == 5) {
            throw Error({.what = "no more tensors"});
        }
        return gpt2_.at(name);
    };
    ExpectRefusal([&] { WriteLlmcGpt2(path_, kGpt2, fail); }, {"no more tensors"});
    EXPECT_EQ(ReadTextFile(path_), "old");
    EXPECT_EQ(FilesInFolder(), (std::vector<std::string>{"weights.bin"}));
    ExpectRefusal([&] { WriteLlmcGpt2(folder_.File(""), kGpt2, From(gpt2_)); }, {"not a regular file"});
    ExpectRefusal([&] { WriteLlmcGpt2(folder_.File("no/weights.bin"), kGpt2, From(gpt2_)); }, {"No such file"});
}

TEST_F(WriteLlmc, ReportsADiskThatIsFull) {
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit small = {.rlim_cur = 2000, .rlim_max = limit.rlim_max};
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    int exit_code = 0;
    try {
        WriteLlmcGpt2(path_, kGpt2, From(gpt2_));
    } catch (const Error& error) {
        message = error.what();
        exit_code = error.exit_code();
    }
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    std::signal(SIGXFSZ, old_handler);
    EXPECT_NE(message.find(path_ + ": cannot write: "), std::string::npos) << message;
    EXPECT_EQ(exit_code, 1);
    EXPECT_TRUE(FilesInFolder().empty());
}

using WriteLlmcDeathTest = WriteLlmc;

TEST_F(WriteLlmcDeathTest, ATensorOfAnotherShapeIsABug) {
    gpt2_["ln_f.bias"] = Tensor::Zeros({5}, DataType::kFloat32, MakeCpuDevice());
    EXPECT_DEATH(WriteLlmcGpt2(path_, kGpt2, From(gpt2_)), "ln_f.bias is \\[5\\], the header says \\[4\\]");
}

TEST(WriteLlmcReference, WritesTheBytesThatItRead) {
    const Device device = MakeCpuDevice();
    for (const std::string& folder : ReferenceFolders()) {
        for (const std::string name : {"gpt2_tiny.bin", "gpt2_tiny_bf16.bin"}) {
            const TemporaryFolder out;
            const LlmcGpt2File file = OpenLlmcGpt2(folder + "/" + name);
            WriteLlmcGpt2(out.File(name), file.header, [&](const std::string& tensor) {
                return Tensor::FromVector(Values(file.weights, tensor), file.weights.shape(tensor), device);
            });
            EXPECT_EQ(ReadTextFile(out.File(name)), ReadTextFile(folder + "/" + name));
        }
    }
}

}  // namespace
}  // namespace infini_train::checkpoint::test
