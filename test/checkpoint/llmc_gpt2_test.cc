#include "infini_train/include/checkpoint/llmc_gpt2.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/src/checkpoint/llmc_layout.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReferenceFolders;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;

constexpr int32_t kInt32Max = std::numeric_limits<int32_t>::max();

class LlmcGpt2 : public testing::Test {
 protected:
    LlmcGpt2File Open(const std::string& bytes) {
        WriteTextFile(path_, bytes);
        return OpenLlmcGpt2(path_);
    }
    /// Refuses the small file with these words changed.
    void ExpectWordsRefused(const std::map<size_t, int32_t>& changes, const std::vector<std::string>& parts) {
        std::vector<std::string> all = parts;
        all.push_back(path_);
        ExpectRefusal([&] { Open(FileOf(With(Gpt2Words(), changes), kGpt2Values)); }, all);
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.File("gpt2.bin");
};

TEST_F(LlmcGpt2, ReadsEveryTensorFromItsPlace) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const int32_t version = dtype == DataType::kFloat32 ? 3 : 5;
        const LlmcGpt2File file = Open(FileOf(With(Gpt2Words(), {{1, version}}), kGpt2Values, dtype));
        EXPECT_EQ(file.header.block_size, 6);
        EXPECT_EQ(file.header.vocab_size, 5);
        EXPECT_EQ(file.header.padded_vocab_size, 8);
        EXPECT_EQ(file.header.num_layers, 2);
        EXPECT_EQ(file.header.num_heads, 2);
        EXPECT_EQ(file.header.num_channels, 4);
        EXPECT_EQ(file.header.dtype, dtype);
        EXPECT_EQ(file.weights.dtype(), dtype);
        // Offsets by hand, in values; bfloat16 holds integers up to 256, so compare below that and where it rounds.
        const auto expect = [&](const std::string& name, const Shape& shape, int64_t offset) {
            ASSERT_EQ(file.weights.shape(name), shape) << name;
            std::vector<float> wanted =
                Counting(static_cast<float>(offset + 1), static_cast<size_t>(NumElements(shape)));
            if (dtype == DataType::kBFloat16) {
                for (float& value : wanted) {
                    value = static_cast<float>(BFloat16(value));
                }
            }
            EXPECT_EQ(Values(file.weights, name), wanted) << name;
        };
        expect("wpe.weight", {6, 4}, 32);
        expect("h.0.ln_1.weight", {4}, 56);
        expect("h.1.ln_1.weight", {4}, 60);
        expect("h.0.ln_1.bias", {4}, 64);
        expect("h.0.attn.c_attn.weight", {12, 4}, 72);
        expect("h.1.attn.c_attn.weight", {12, 4}, 120);
        expect("h.1.attn.c_attn.bias", {12}, 180);
        expect("h.1.attn.c_proj.weight", {4, 4}, 208);
        expect("h.0.attn.c_proj.bias", {4}, 224);
        expect("h.0.ln_2.weight", {4}, 232);
        expect("h.1.ln_2.bias", {4}, 244);
        expect("h.1.mlp.c_fc.weight", {16, 4}, 312);
        expect("h.0.mlp.c_fc.bias", {16}, 376);
        expect("h.1.mlp.c_proj.weight", {4, 16}, 472);
        expect("h.1.mlp.c_proj.bias", {4}, 540);
        expect("ln_f.weight", {4}, 544);
        expect("ln_f.bias", {4}, 548);
        EXPECT_FALSE(file.weights.Contains("h.2.ln_1.weight"));
        EXPECT_FALSE(file.weights.Contains("lm_head.weight"));
    }
}

// bugs.csv O31, with one rank of tensor parallelism, as all there are.
TEST_F(LlmcGpt2, PaddingRowsOfTheEmbeddingReadAsZero) {
    std::string bytes = FileOf(Gpt2Words(), kGpt2Values);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (size_t i = 5 * 4; i < 8 * 4; ++i) {
        std::memcpy(&bytes[1024 + i * sizeof(float)], &nan, sizeof(nan));
    }
    std::vector<float> wanted = Counting(1, 5 * 4);
    wanted.resize(8 * 4);
    EXPECT_EQ(Values(Open(bytes).weights, "wte.weight"), wanted);
}

TEST_F(LlmcGpt2, LayoutOf124MIsThatOfTheFormat) {
    const LlmcGpt2Header header = {.block_size = 1024,
                                   .vocab_size = 50257,
                                   .padded_vocab_size = 50304,
                                   .num_layers = 12,
                                   .num_heads = 12,
                                   .num_channels = 768};
    EXPECT_EQ(CountElements(Gpt2Layout(header)), 124475904u);
    EXPECT_EQ(CountBytes(Gpt2Layout(header), DataType::kFloat32), 497904640u - 1024);
    EXPECT_EQ(CountBytes(Gpt2Layout(header), DataType::kBFloat16), 248952832u - 1024);
    std::map<std::string, uint64_t> offsets;
    for (const PlacedTensor& tensor : Place(Gpt2Layout(header), DataType::kFloat32, 1024)) {
        offsets[tensor.name] = tensor.entry.offset;
    }
    EXPECT_EQ(offsets.size(), 4u + 12 * 12);
    const std::map<std::string, uint64_t> wanted = {
        {"wte.weight", 1024},
        {"wpe.weight", 154534912},
        {"h.0.ln_1.weight", 157680640},
        {"h.0.ln_1.bias", 157717504},
        {"h.0.attn.c_attn.weight", 157754368},
        {"h.0.attn.c_attn.bias", 242689024},
        {"h.0.attn.c_proj.weight", 242799616},
        {"h.0.attn.c_proj.bias", 271111168},
        {"h.0.ln_2.weight", 271148032},
        {"h.0.ln_2.bias", 271184896},
        {"h.0.mlp.c_fc.weight", 271221760},
        {"h.0.mlp.c_fc.bias", 384467968},
        {"h.0.mlp.c_proj.weight", 384615424},
        {"h.0.mlp.c_proj.bias", 497861632},
        {"ln_f.weight", 497898496},
        {"ln_f.bias", 497901568},
        {"h.11.ln_1.weight", 157680640 + 11 * 768 * 4},
    };
    for (const auto& [name, offset] : wanted) {
        EXPECT_EQ(offsets.at(name), offset) << name;
    }
}

TEST_F(LlmcGpt2, CountsInSixtyFourBitsOrNotAtAll) {
    LlmcGpt2Header header = {.block_size = 1,
                             .vocab_size = 1,
                             .padded_vocab_size = int64_t{1} << 31,
                             .num_layers = 1,
                             .num_heads = 1,
                             .num_channels = 1};
    EXPECT_EQ(CountBytes(Gpt2Layout(header), DataType::kFloat32), ((uint64_t{1} << 31) + 1 + 25 + 2) * 4);
    header.num_channels = int64_t{1} << 31;  // rows times channels fit, times 4 bytes is 2^64
    header.num_layers = 0;
    EXPECT_TRUE(CountElements(Gpt2Layout(header)).has_value());
    EXPECT_FALSE(CountBytes(Gpt2Layout(header), DataType::kFloat32).has_value());
    header.num_layers = 2;
    EXPECT_FALSE(CountElements(Gpt2Layout(header)).has_value());
}

TEST_F(LlmcGpt2, RefusesAnotherSize) {
    const std::string bytes = FileOf(Gpt2Words(), kGpt2Values);
    ExpectRefusal([&] { Open(bytes.substr(0, bytes.size() - 1)); },
                  {path_, "cut short", "got 3231 bytes", "wanted 3232"});
    ExpectRefusal([&] { Open(bytes + "x"); }, {path_, "bytes after the last tensor", "got 3233 bytes", "wanted 3232"});
    ExpectRefusal([&] { Open(bytes.substr(0, 1024)); }, {path_, "cut short"});
    ExpectRefusal([&] { Open(bytes.substr(0, 1023)); }, {path_, "size", "1023 bytes"});
    ExpectRefusal([&] { Open(""); }, {path_, "size", "0 bytes"});
    ExpectRefusal([&] { OpenLlmcGpt2(folder_.File("missing")); }, {"missing", "No such file"});
}

TEST_F(LlmcGpt2, NamesTheKindOfAnotherFile) {
    ExpectWordsRefused({{0, 12345}}, {"unknown magic", "got 12345", "wanted 20240326"});
    ExpectWordsRefused({{0, __builtin_bswap32(20240326)}}, {"wrong byte order", "GPT-2 weights"});
    ExpectWordsRefused({{0, __builtin_bswap32(20240803)}}, {"wrong byte order", "LLaMA-3 weights"});
    ExpectWordsRefused({{0, 20240327}}, {"magic", "GPT-2 debug state"});
    ExpectWordsRefused({{0, 20240328}}, {"magic", "tokenizer"});
    ExpectWordsRefused({{0, 20240520}}, {"magic", "GPT-2 tokens"});
    ExpectWordsRefused({{0, 20240522}}, {"magic", "multiple-choice"});
    ExpectWordsRefused({{0, 20240527}}, {"magic", "trainer state"});
    ExpectWordsRefused({{0, 20240801}}, {"magic", "LLaMA-3 tokens"});
    ExpectWordsRefused({{0, 20240803}}, {"magic", "LLaMA-3 weights"});
}

TEST_F(LlmcGpt2, RefusesOtherVersions) {
    for (const int32_t version : {1, 2, 4}) {
        ExpectWordsRefused({{1, version}}, {"obsolete version", "got " + std::to_string(version), "3 (float32)"});
    }
    for (const int32_t version : {-3, 0, 6}) {
        ExpectWordsRefused({{1, version}}, {"unknown version", "got " + std::to_string(version)});
    }
    ExpectWordsRefused({{1, 5}}, {"size"});
}

TEST_F(LlmcGpt2, RefusesFieldsOutOfRange) {
    const std::vector<std::string> names = {"block_size", "vocab_size",   "num_layers",
                                            "num_heads",  "num_channels", "padded_vocab_size"};
    for (size_t i = 0; i < names.size(); ++i) {
        const std::string word = "word " + std::to_string(i + 2) + ", " + names[i];
        for (const int32_t value : {0, -1, std::numeric_limits<int32_t>::min(), kInt32Max}) {
            ExpectWordsRefused({{i + 2, value}}, {word, "got " + std::to_string(value), "1 to "});
        }
    }
    ExpectWordsRefused({{4, 10001}}, {"num_layers", "10000"});
    ExpectWordsRefused({{2, (1 << 20) + 1}}, {"block_size", "1048576"});
}

TEST_F(LlmcGpt2, RefusesFieldsThatDoNotFitTogether) {
    ExpectWordsRefused({{3, 9}}, {"vocab_size 9", "padded_vocab_size 8"});
    ExpectWordsRefused({{5, 3}}, {"num_heads 3", "num_channels 4"});
    ExpectWordsRefused({{5, 8}}, {"num_heads 8", "num_channels 4"});
    ExpectWordsRefused({{8, 1}}, {"word 8", "got 1", "wanted 0"});
    ExpectWordsRefused({{255, -1}}, {"word 255", "got -1"});
}

TEST_F(LlmcGpt2, RefusesTheLargestHeadersBeforeItAllocates) {
    // At the limits: 2^24 rows, 2^20 channels, 10^4 layers are 2^58 bytes.
    ExpectWordsRefused({{2, 1 << 20}, {3, 1 << 24}, {4, 10000}, {5, 1}, {6, 1 << 20}, {7, 1 << 24}}, {"size"});
    ExpectWordsRefused({{4, 10000}}, {"size"});
}

TEST_F(LlmcGpt2, AFlippedByteInTheHeaderIsRefusedOrLoads) {
    Open(FileOf(Gpt2Words(), kGpt2Values));
    const auto open_and_read = [&] { EXPECT_EQ(Values(OpenLlmcGpt2(path_).weights, "ln_f.bias"), Counting(549, 4)); };
    // What loads has another number of heads, or of padding rows.
    EXPECT_GT(NumRefusedFlips(path_, 32, 1000, open_and_read), 900);
    EXPECT_GT(NumRefusedFlips(path_, 1024, 1000, open_and_read), 990);
    open_and_read();
}

TEST_F(LlmcGpt2, ReadsATensorOfMoreThanFourGibibytes) {
    constexpr int64_t kRows = (int64_t{1} << 20) + 1;  // neither int32 nor uint32 holds its bytes
    constexpr int64_t kChannels = 1024;
    const Words words = {20240326, 3, 1, kRows, 1, 1, kChannels, kRows};
    const LlmcGpt2Header header = {.block_size = 1,
                                   .vocab_size = kRows,
                                   .padded_vocab_size = kRows,
                                   .num_layers = 1,
                                   .num_heads = 1,
                                   .num_channels = kChannels};
    const auto size_bytes = static_cast<off_t>(1024 + *CountBytes(Gpt2Layout(header), DataType::kFloat32));
    WriteTextFile(path_, FileOf(words, 0));
    ASSERT_EQ(truncate(path_.c_str(), size_bytes), 0);  // a hole: no disk is used
    const int file = open(path_.c_str(), O_WRONLY);
    const float last_of_wte = 7.0f;
    const float last_of_file = 9.0f;
    ASSERT_EQ(pwrite(file, &last_of_wte, 4, 1024 + kRows * kChannels * 4 - 4), 4);
    ASSERT_EQ(pwrite(file, &last_of_file, 4, size_bytes - 4), 4);
    close(file);

    const LlmcGpt2File weights = OpenLlmcGpt2(path_);
    std::vector<float> row(kChannels);
    weights.weights.ReadRows("wte.weight", kRows - 1, kRows, row.data());
    EXPECT_EQ(row.front(), 0.0f);
    EXPECT_EQ(row.back(), 7.0f);
    EXPECT_EQ(Values(weights.weights, "ln_f.bias").back(), 9.0f);
}

TEST(LlmcGpt2Reference, BothPrecisionsHoldTheSameModel) {
    for (const std::string& folder : ReferenceFolders()) {
        const LlmcGpt2File wide = OpenLlmcGpt2(folder + "/gpt2_tiny.bin");
        const LlmcGpt2File narrow = OpenLlmcGpt2(folder + "/gpt2_tiny_bf16.bin");
        EXPECT_EQ(narrow.header.dtype, DataType::kBFloat16);
        for (const PlacedTensor& tensor : Place(Gpt2Layout(wide.header), DataType::kFloat32, 0)) {
            std::vector<float> wanted = Values(wide.weights, tensor.name);
            for (float& value : wanted) {
                value = static_cast<float>(BFloat16(value));
            }
            EXPECT_EQ(Values(narrow.weights, tensor.name), wanted) << tensor.name;
        }
    }
}

}  // namespace
}  // namespace infini_train::checkpoint::test
