#include "infini_train/include/checkpoint/llmc_llama3.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
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

class LlmcLlama3 : public testing::Test {
 protected:
    LlmcLlama3File Open(const std::string& bytes) {
        WriteTextFile(path_, bytes);
        return OpenLlmcLlama3(path_);
    }
    /// Refuses the small file with these words changed.
    void ExpectWordsRefused(const std::map<size_t, int32_t>& changes, const std::vector<std::string>& parts) {
        std::vector<std::string> all = parts;
        all.push_back(path_);
        ExpectRefusal([&] { Open(FileOf(With(Llama3IntegerWords(), changes), kLlama3Values)); }, all);
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.File("llama3.bin");
};

bool HasNote(const LlmcLlama3Header& header, const std::string& part) {
    return std::any_of(header.notes.begin(), header.notes.end(),
                       [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

TEST_F(LlmcLlama3, ReadsEveryTensorFromItsPlace) {
    const LlmcLlama3File file = Open(FileOf(Llama3IntegerWords(), kLlama3Values));
    const auto expect = [&](const std::string& name, const Shape& shape, int64_t offset) {
        ASSERT_EQ(file.weights.shape(name), shape) << name;
        const std::vector<float> wanted =
            Counting(static_cast<float>(offset + 1), static_cast<size_t>(NumElements(shape)));
        EXPECT_EQ(Values(file.weights, name), wanted) << name;
    };
    expect("wte.weight", {7, 8}, 0);
    expect("h.0.ln_1.weight", {8}, 56);
    expect("h.1.ln_1.weight", {8}, 64);
    expect("h.0.attn.c_attn.weight", {16, 8}, 72);
    expect("h.1.attn.c_attn.weight", {16, 8}, 200);
    expect("h.1.attn.c_proj.weight", {8, 8}, 392);
    expect("h.0.ln_2.weight", {8}, 456);
    expect("h.1.mlp.c_fc.weight", {24, 8}, 664);
    expect("h.0.mlp.c_fc2.weight", {24, 8}, 856);
    expect("h.1.mlp.c_proj.weight", {8, 24}, 1432);
    expect("ln_f.weight", {8}, 1624);
    expect("lm_head.weight", {7, 8}, 1632);
    EXPECT_FALSE(file.weights.Contains("h.2.ln_1.weight"));
}

TEST_F(LlmcLlama3, BothDialectsGiveTheSameModel) {
    const LlmcLlama3File integers = Open(FileOf(Llama3IntegerWords(), kLlama3Values));
    WriteTextFile(folder_.File("floats.bin"), FileOf(Llama3FloatWords(), kLlama3Values));
    const LlmcLlama3File floats = OpenLlmcLlama3(folder_.File("floats.bin"));
    for (const LlmcLlama3Header* header : {&integers.header, &floats.header}) {
        EXPECT_EQ(header->block_size, 6);
        EXPECT_EQ(header->vocab_size, 7);
        EXPECT_EQ(header->num_layers, 2);
        EXPECT_EQ(header->num_heads, 4);
        EXPECT_EQ(header->num_kv_heads, 2);
        EXPECT_EQ(header->num_channels, 8);
        EXPECT_EQ(header->hidden_size, 24);
        EXPECT_EQ(header->rope_theta, 10000.0f);
        EXPECT_TRUE(header->use_scaled_rope);
        EXPECT_FALSE(header->head_is_tied);
        EXPECT_EQ(header->dtype, DataType::kFloat32);
        EXPECT_TRUE(HasNote(*header, "rotary frequencies are scaled"));
        EXPECT_FALSE(HasNote(*header, "multiplier"));
    }
    EXPECT_EQ(integers.header.norm_eps, 1e-5f);
    EXPECT_TRUE(HasNote(integers.header, "norm_eps is not stored in this dialect"));
    EXPECT_EQ(floats.header.norm_eps, 1e-6f);
    EXPECT_FALSE(HasNote(floats.header, "norm_eps"));
    for (const PlacedTensor& tensor : Place(Llama3Layout(floats.header), DataType::kFloat32, 0)) {
        EXPECT_EQ(Values(floats.weights, tensor.name), Values(integers.weights, tensor.name)) << tensor.name;
    }
}

TEST_F(LlmcLlama3, ReadsBFloat16) {
    const Words words = With(Llama3FloatWords(), {{1, 5}});
    const LlmcLlama3File file = Open(FileOf(words, kLlama3Values, DataType::kBFloat16));
    EXPECT_EQ(file.header.dtype, DataType::kBFloat16);
    EXPECT_EQ(file.header.hidden_size, 24);
    EXPECT_EQ(Values(file.weights, "h.0.attn.c_attn.weight"), Counting(73, 128));
}

TEST_F(LlmcLlama3, WidthOfTheMlpIsThatOfTheFile) {
    // Half as wide again as the multiplier says: the size decides, and a note says so.
    const int64_t num_values = kLlama3Values + 2 * 3 * 8 * 16;
    const LlmcLlama3File floats = Open(FileOf(Llama3FloatWords(), num_values));
    EXPECT_EQ(floats.header.hidden_size, 40);
    EXPECT_TRUE(HasNote(floats.header, "40 wide by the size of the file, 24 by the multiplier"));
    // An integer 1 stands for 1.0 to 2.0: 21 to 42, rounded up to a multiple of 8.
    EXPECT_FALSE(HasNote(Open(FileOf(Llama3IntegerWords(), num_values)).header, "multiplier"));
    const LlmcLlama3File wider = Open(FileOf(Llama3IntegerWords(), num_values + 2 * 3 * 8 * 16));
    EXPECT_EQ(wider.header.hidden_size, 56);
    EXPECT_TRUE(HasNote(wider.header, "24 to 48 by the multiplier"));
    ExpectRefusal([&] { Open(FileOf(Llama3IntegerWords(), kLlama3Values + 2 * 3 * 8 * 4)); },
                  {path_, "size", "width a multiple of 8"});
}

TEST_F(LlmcLlama3, AMultiplierIsCutOrRoundedByItsWriter) {
    // 1.325 x 21 = 27.8, cut to 27 or rounded to 28; rounded up to a multiple of 1.
    const Words words = With(Llama3FloatWords(), {{8, std::bit_cast<int32_t>(1.325f)}, {9, 1}});
    for (const int64_t width : {27, 28}) {
        const LlmcLlama3File file = Open(FileOf(words, kLlama3Values + 2 * 3 * 8 * (width - 24)));
        EXPECT_EQ(file.header.hidden_size, width);
        EXPECT_FALSE(HasNote(file.header, "multiplier"));
    }
}

TEST_F(LlmcLlama3, AHeadWithTheBytesOfTheEmbeddingIsTied) {
    std::string bytes = FileOf(Llama3IntegerWords(), kLlama3Values);
    std::copy_n(bytes.begin() + 1024, 7 * 8 * 4, bytes.end() - 7 * 8 * 4);
    EXPECT_TRUE(Open(bytes).header.head_is_tied);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    EXPECT_FALSE(Open(bytes).header.head_is_tied);
}

TEST_F(LlmcLlama3, HeadsOfManyChunksAreComparedToTheEnd) {
    // 70000 x 2 float32: more than two chunks of 256 KiB.
    const Words words = {20240803, 3, 4, 70000, 1, 1, 1, 2, 1, 1, 0, 10000, 0, 4, 3, 1};
    const int64_t num_values = 2 * 70000 * 2 + 2 + (2 * 2 + 3 * 2 * 2 + 2 * 2 + 3 * 5 * 2);
    std::string bytes = FileOf(words, num_values);
    std::copy_n(bytes.begin() + 1024, 560000, bytes.end() - 560000);
    EXPECT_TRUE(Open(bytes).header.head_is_tied);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    EXPECT_FALSE(Open(bytes).header.head_is_tied);
}

TEST_F(LlmcLlama3, Reads8BFromItsPlaceInASparseFile) {
    const LlmcLlama3Header header = {.block_size = 8192,
                                     .vocab_size = 128256,
                                     .num_layers = 32,
                                     .num_heads = 32,
                                     .num_kv_heads = 8,
                                     .num_channels = 4096,
                                     .hidden_size = 14336};
    EXPECT_EQ(CountElements(Llama3Layout(header)), 8030261248u);
    EXPECT_EQ(CountBytes(Llama3Layout(header), DataType::kBFloat16), 16060523520u - 1024);
    EXPECT_EQ(CountBytes(Llama3Layout(header), DataType::kFloat32), 32121046016u - 1024);

    const Words words = {20240803, 5, 8192, 128256, 32, 32, 8, 4096, 1, 1024, 0, 500000, 1, 4, 3, 1};
    WriteTextFile(path_, FileOf(words, 0));
    ASSERT_EQ(truncate(path_.c_str(), 16060523520), 0);  // a hole: no disk is used
    const int file = open(path_.c_str(), O_WRONLY);
    const BFloat16 first_of_head(2.0f);
    ASSERT_EQ(pwrite(file, &first_of_head, 2, 16060523520 - int64_t{128256} * 4096 * 2), 2);
    close(file);
    const LlmcLlama3File model = OpenLlmcLlama3(path_);
    EXPECT_EQ(model.header.hidden_size, 14336);
    EXPECT_EQ(model.header.rope_theta, 500000.0f);
    EXPECT_FALSE(HasNote(model.header, "multiplier"));
    EXPECT_FALSE(model.header.head_is_tied);
    std::vector<float> row(4096);
    model.weights.ReadRows("lm_head.weight", 0, 1, row.data());
    EXPECT_EQ(row[0], 2.0f);
}

TEST_F(LlmcLlama3, RefusesAHeaderOfNeitherOrMixedDialect) {
    const std::vector<std::string> parts = {"8, 10 and 11", "make no sense", "rope_theta"};
    ExpectWordsRefused({{8, 9}}, parts);
    ExpectWordsRefused({{8, -1}}, parts);
    ExpectWordsRefused({{10, 1}}, parts);
    ExpectWordsRefused({{11, 999}}, parts);
    ExpectWordsRefused({{11, 100000001}}, parts);
    const Words floats = Llama3FloatWords();
    ExpectWordsRefused({{8, floats[8]}}, parts);
    ExpectWordsRefused({{10, floats[10]}}, parts);
    ExpectWordsRefused({{11, floats[11]}}, parts);
    ExpectWordsRefused({{8, floats[8]}, {10, floats[10]}}, parts);
    const int32_t nan = std::bit_cast<int32_t>(std::nanf(""));
    for (const size_t index : {8, 10, 11}) {
        const Words words = With(floats, {{index, nan}});
        ExpectRefusal([&] { Open(FileOf(words, kLlama3Values)); }, parts);
    }
}

TEST_F(LlmcLlama3, RefusesAnotherSize) {
    const std::string bytes = FileOf(Llama3IntegerWords(), kLlama3Values);
    ExpectRefusal([&] { Open(bytes.substr(0, bytes.size() - 1)); }, {path_, "size", "cut short"});
    ExpectRefusal([&] { Open(bytes + "x"); }, {path_, "size", "too long"});
    ExpectRefusal([&] { Open(bytes + "1234"); }, {path_, "size"});
    ExpectRefusal([&] { Open(bytes.substr(0, 1024)); }, {path_, "cut short"});
    ExpectRefusal([&] { Open(bytes.substr(0, 1000)); }, {path_, "size"});
    // No MLP at all.
    ExpectRefusal([&] { Open(FileOf(Llama3IntegerWords(), kLlama3Values - 2 * 3 * 24 * 8)); }, {path_, "size"});
}

TEST_F(LlmcLlama3, NamesTheKindOfAnotherFile) {
    ExpectWordsRefused({{0, 12345}}, {"unknown magic", "got 12345", "wanted 20240803"});
    ExpectWordsRefused({{0, __builtin_bswap32(20240803)}}, {"wrong byte order"});
    ExpectWordsRefused({{0, 20240326}}, {"magic", "GPT-2 weights"});
    ExpectWordsRefused({{0, 20240801}}, {"magic", "tokens, or a tokenizer"});
    for (const int32_t version : {-1, 0, 1, 2, 4, 6}) {
        ExpectWordsRefused({{1, version}}, {"unknown version", "got " + std::to_string(version)});
    }
    // A debug state with a batch of 3 or 5 has the words of weights up to word 2.
    for (const int32_t batch_size : {2, 3, 5}) {
        const Words words = {20240803, batch_size, 6};
        ExpectRefusal([&] { Open(FileOf(words, kLlama3Values)); }, {path_, "word 3", "LLaMA-3 debug state"});
    }
}

TEST_F(LlmcLlama3, RefusesFieldsOutOfRange) {
    const std::map<size_t, std::string> names = {{2, "block_size"},  {3, "vocab_size"},      {4, "num_layers"},
                                                 {5, "num_heads"},   {6, "num_kv_heads"},    {7, "num_channels"},
                                                 {9, "multiple_of"}, {12, "use_scaled_rope"}};
    for (const auto& [index, name] : names) {
        const std::string word = "word " + std::to_string(index) + ", " + name;
        for (const int32_t value : {-1, std::numeric_limits<int32_t>::min(), kInt32Max}) {
            ExpectWordsRefused({{index, value}}, {word, "got " + std::to_string(value)});
        }
        if (index != 3 && index != 12) {  // a vocabulary of 0 is a debug state
            ExpectWordsRefused({{index, 0}}, {word, "got 0"});
        }
    }
    ExpectWordsRefused({{12, 2}}, {"use_scaled_rope", "0 to 1"});
    for (const size_t index : {13, 14, 15}) {
        ExpectWordsRefused({{index, -1}}, {"word " + std::to_string(index), "got -1"});
    }
    ExpectWordsRefused({{16, 1}}, {"word 16", "got 1"});
    ExpectWordsRefused({{255, 1}}, {"word 255"});
}

// bugs.csv O32, O33: before anything is allocated.
TEST_F(LlmcLlama3, RefusesHeadsThatDoNotFitTogether) {
    ExpectWordsRefused({{5, 3}}, {"num_heads 3", "num_channels 8"});
    ExpectWordsRefused({{6, 3}}, {"num_heads 4", "num_kv_heads 3"});
    ExpectWordsRefused({{6, 8}}, {"num_heads 4", "num_kv_heads 8"});
    ExpectWordsRefused({{6, 0}}, {"num_kv_heads", "got 0"});
    ExpectWordsRefused({{6, -2}}, {"num_kv_heads", "got -2"});
    ExpectWordsRefused({{5, 8}}, {"even head dimension", "num_channels 8", "num_heads 8"});
}

TEST_F(LlmcLlama3, RefusesTheLargestHeadersBeforeItAllocates) {
    ExpectWordsRefused({{2, 1 << 20}, {3, 1 << 24}, {4, 10000}, {5, 1}, {6, 1}, {7, 1 << 20}}, {"size"});
    ExpectWordsRefused({{3, 1 << 24}}, {"size"});
}

TEST_F(LlmcLlama3, AFlippedByteInTheHeaderIsRefusedOrLoads) {
    for (const Words& words : {Llama3IntegerWords(), Llama3FloatWords()}) {
        Open(FileOf(words, kLlama3Values));
        const auto open_and_read = [&] {
            EXPECT_EQ(Values(OpenLlmcLlama3(path_).weights, "wte.weight").front(), 1.0f);
        };
        // What loads has another theta, eps, multiplier, block size, or words that nothing reads: 20 of the 64 bytes.
        EXPECT_GT(NumRefusedFlips(path_, 64, 1000, open_and_read), 600);
        EXPECT_GT(NumRefusedFlips(path_, 1024, 1000, open_and_read), 950);
        open_and_read();
    }
}

TEST(LlmcLlama3Reference, ReadsTheFilesOfOtherWriters) {
    int num_files = 0;
    for (const std::string& folder : ReferenceFolders()) {
        for (const std::string name : {"/llama_tiny", "/llama_shakespeare"}) {
            if (access((folder + name + ".bin").c_str(), R_OK) != 0) {
                continue;
            }
            ++num_files;
            const LlmcLlama3File wide = OpenLlmcLlama3(folder + name + ".bin");
            const LlmcLlama3File narrow = OpenLlmcLlama3(folder + name + "_bf16.bin");
            EXPECT_EQ(wide.header.hidden_size, name == "/llama_tiny" ? 88 : 172);
            EXPECT_EQ(wide.header.rope_theta, name == "/llama_tiny" ? 2000.0f : 500000.0f);
            EXPECT_FALSE(wide.header.head_is_tied);
            EXPECT_EQ(wide.header.notes.size(), 1u);  // norm_eps
            EXPECT_EQ(narrow.header.hidden_size, wide.header.hidden_size);
            for (const PlacedTensor& tensor : Place(Llama3Layout(wide.header), DataType::kFloat32, 0)) {
                std::vector<float> wanted = Values(wide.weights, tensor.name);
                for (float& value : wanted) {
                    value = static_cast<float>(BFloat16(value));
                }
                EXPECT_EQ(Values(narrow.weights, tensor.name), wanted) << tensor.name;
            }
        }
    }
    EXPECT_GT(num_files, 0);
    const LlmcLlama3Header header =
        OpenLlmcLlama3(std::string(INFINI_SOURCE_DIR) + "/test/reference/llama_float_header.bin").header;
    EXPECT_EQ(header.hidden_size, 56);
    EXPECT_EQ(header.norm_eps, 1e-6f);
    EXPECT_EQ(header.rope_theta, 10000.0f);
    EXPECT_TRUE(header.notes.empty());
}

}  // namespace
}  // namespace infini_train::checkpoint::test
