#include "infini_train/include/checkpoint/safetensors.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/llmc_gpt2.h"
#include "infini_train/include/common/str_cat.h"
#include "test/checkpoint/llmc_files.h"
#include "test/checkpoint/safetensors_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReferenceFolders;
using infini_train::test::WriteTextFile;

using Safetensors = SafetensorsTest;

const std::string kSmallHeader = "{" + EntryOf("b", "F32", "[2, 2]", 12, 28) + "," + EntryOf("a", "F32", "[3]", 0, 12) +
                                 R"(, "__metadata__": {"format": "pt", "": ""}, )" +
                                 EntryOf("scalar", "F32", "[]", 28, 32) + "}";

TEST_F(Safetensors, ReadsTensorsInAnyOrderOfTheHeader) {
    const WeightFile file = Open(FileOf(kSmallHeader, DataOf(8)));
    EXPECT_EQ(file.path(), path_);
    EXPECT_EQ(file.dtype(), DataType::kFloat32);
    EXPECT_EQ(file.shape("a"), (Shape{3}));
    EXPECT_EQ(file.shape("b"), (Shape{2, 2}));
    EXPECT_EQ(file.shape("scalar"), Shape{});
    EXPECT_EQ(Values(file, "a"), Counting(1, 3));
    EXPECT_EQ(Values(file, "b"), Counting(4, 4));
    EXPECT_EQ(Values(file, "scalar"), Counting(8, 1));
    EXPECT_FALSE(file.Contains("__metadata__"));
}

TEST_F(Safetensors, ReadsBFloat16AndAMixture) {
    const std::string narrow = DataOf(3, DataType::kBFloat16);
    const WeightFile one = Open(FileOf("{" + EntryOf("w", "BF16", "[3, 1]", 0, 6) + "}", narrow));
    EXPECT_EQ(one.dtype(), DataType::kBFloat16);
    EXPECT_EQ(Values(one, "w"), Counting(1, 3));
    // The float32 tensor lies at an odd place.
    const std::string both = "{" + EntryOf("w", "BF16", "[3]", 0, 6) + "," + EntryOf("v", "F32", "[2]", 6, 14) + "}";
    const WeightFile two = Open(FileOf(both, narrow + DataOf(2)));
    EXPECT_EQ(two.dtype(), DataType::kFloat32);
    EXPECT_EQ(Values(two, "w"), Counting(1, 3));
    EXPECT_EQ(Values(two, "v"), Counting(1, 2));
}

TEST_F(Safetensors, AHeaderWithoutTensorsIsLegal) {
    EXPECT_FALSE(Open(FileOf("{}", "")).Contains("w"));
    EXPECT_FALSE(Open(FileOf(R"({"__metadata__": {}})", "")).Contains("w"));
    ExpectRefused(FileOf("{}", "x"), {"after the last tensor", "got 11 bytes", "wanted 10"});
}

// --- The size of the header.

TEST_F(Safetensors, RefusesAFileTooShortForItsHeader) {
    ExpectRefused("", {"too short", "got 0 bytes", "wanted at least 8"});
    ExpectRefused(std::string(7, '\0'), {"too short", "got 7 bytes"});
    ExpectRefused(SizeOfHeader(0), {"does not begin with {"});
    ExpectRefused(SizeOfHeader(3) + "{}", {"within its safetensors header", "got 10 bytes", "wanted at least 11"});
}

// O70
TEST_F(Safetensors, RefusesAHeaderOfMoreThanAHundredMillionBytesBeforeItAllocates) {
    ExpectRefused(SizeOfHeader(100000001), {"too large", "got 100000001 bytes", "wanted at most 100000000"});
    ExpectRefused(SizeOfHeader(uint64_t{1} << 63), {"too large", "9223372036854775808"});
    ExpectRefused(SizeOfHeader(~uint64_t{0}), {"too large", "18446744073709551615"});
    ExpectRefused(SizeOfHeader(100000000), {"within its safetensors header", "wanted at least 100000008"});
    // The limit comes first where the file is that large: a hole, no disk is used.
    WriteTextFile(path_, SizeOfHeader(100000001));
    ASSERT_EQ(truncate(path_.c_str(), 200000000), 0);
    ExpectRefusal([&] { OpenSafetensors(path_); }, {path_, "too large"});
}

// --- Dtypes, shapes and bytes.

TEST_F(Safetensors, RefusesAnUnknownDtypeOfAnyTensor) {
    for (const std::string dtype : {"F31", "f32", "", "F32 ", "F8_", "INT4"}) {
        ExpectHeaderRefused("{" + EntryOf("w", dtype, "[2]", 0, 8) + "}", {"\"w\"", "unknown dtype", dtype});
        // A mask buffer is no exception.
        ExpectHeaderRefused("{" + EntryOf("h.0.attn.bias", dtype, "[2]", 0, 8) + "}", {"unknown dtype"});
    }
}

TEST_F(Safetensors, RefusesAKnownDtypeThatWeightsCannotHaveByTensorAndDtype) {
    const std::vector<std::pair<std::string, std::string>> eight_bytes = {
        {"BOOL", "[8]"},    {"U8", "[8]"},      {"I8", "[8]"},      {"I16", "[4]"}, {"U16", "[4]"},   {"F16", "[4]"},
        {"I32", "[2]"},     {"U32", "[2]"},     {"I64", "[1]"},     {"U64", "[1]"}, {"F64", "[1]"},   {"C64", "[1]"},
        {"F8_E4M3", "[8]"}, {"F8_E5M2", "[8]"}, {"F8_E8M0", "[8]"}, {"F4", "[16]"}, {"F4", "[2, 8]"},
    };
    for (const auto& [dtype, shape] : eight_bytes) {
        ExpectHeaderRefused("{" + EntryOf("w", dtype, shape, 0, 8) + "}", {"\"w\"", "got " + dtype, "F32 or BF16"});
        ExpectHeaderRefused("{" + EntryOf("w", dtype, shape, 0, 7) + "}", {"data_offsets do not fit"});
    }
    ExpectRefused(FileOf("{" + EntryOf("w", "F6_E2M3", "[4]", 0, 3) + "}", "abc"), {"\"w\"", "got F6_E2M3"});
    ExpectRefused(FileOf("{" + EntryOf("w", "F6_E3M2", "[8]", 0, 6) + "}", "abcdef"), {"\"w\"", "got F6_E3M2"});
    // 18 bits are 2 bytes and a quarter, 4 bits half of one.
    ExpectRefused(FileOf("{" + EntryOf("w", "F6_E2M3", "[3]", 0, 2) + "}", "ab"), {"do not fit", "whole bytes"});
    ExpectRefused(FileOf("{" + EntryOf("w", "F4", "[1]", 0, 0) + "}", ""), {"do not fit", "whole bytes"});
}

TEST_F(Safetensors, MaskBuffersAreCheckedAndLeftOut) {
    for (const std::string name : {"h.0.attn.bias", "h.11.attn.masked_bias", "transformer.h.0.attn.bias",
                                   "transformer.h.120.attn.masked_bias"}) {
        const std::string both = "{" + EntryOf(name, "BOOL", "[1, 1, 2, 2]", 0, 4) + ",";
        const WeightFile file = Open(FileOf(both + EntryOf("w", "F32", "[1]", 4, 8) + "}", DataOf(2)));
        EXPECT_FALSE(file.Contains(name));
        EXPECT_EQ(Values(file, "w"), Counting(2, 1));
        EXPECT_FALSE(Open(FileOf("{" + EntryOf(name, "F32", "[2]", 0, 8) + "}", DataOf(2))).Contains(name));
        ExpectHeaderRefused("{" + EntryOf(name, "BOOL", "[7]", 0, 8) + "}", {name, "do not fit"});
        ExpectHeaderRefused("{" + EntryOf(name, "BOOL", "[4]", 4, 8) + "}", {name, "hole"});
    }
    for (const std::string name :
         {"h.attn.bias", "h..attn.bias", "h.01.attn.bias", "h.x.attn.bias", "h.0.attn.bias2", "h.0.attn.biases",
          "h.0.attn.c_attn.bias", "xh.0.attn.bias", "transformer.transformer.h.0.attn.bias", "model.h.0.attn.bias",
          "h.0.attn.masked", "h.0", "h.", "", "transformer.", "h.-1.attn.bias", "H.0.attn.bias"}) {
        ExpectHeaderRefused("{" + EntryOf(name, "U8", "[8]", 0, 8) + "}", {"\"" + name + "\"", "got U8"});
        EXPECT_TRUE(Open(FileOf("{" + EntryOf(name, "F32", "[2]", 0, 8) + "}", DataOf(2))).Contains(name)) << name;
    }
}

// O63
TEST_F(Safetensors, RefusesAShapeWhoseSignedProductIsNegative) {
    ExpectHeaderRefused("{" + EntryOf("w", "F32", "[9223372036854775807, 2]", 0, 8) + "}",
                        {"\"w\".\"shape\"", "9223372036854775807"});
    ExpectHeaderRefused("{" + EntryOf("w", "U8", "[4611686018427387904, 2]", 0, 8) + "}", {"4611686018427387904"});
}

// O64
TEST_F(Safetensors, RefusesOffsetsThatDoNotFitTheShape) {
    ExpectRefused(FileOf("{" + EntryOf("w", "F32", "[1000, 1000]", 0, 4) + "}", DataOf(1)),
                  {"\"w\"", "data_offsets do not fit F32 [1000, 1000]", "bytes 0 to 4", "wanted 4000000 bytes"});
    ExpectHeaderRefused("{" + EntryOf("w", "F32", "[1]", 0, 8) + "}", {"do not fit F32 [1]"});
    ExpectHeaderRefused("{" + EntryOf("w", "F32", "[]", 0, 8) + "}", {"do not fit F32 []"});
    ExpectHeaderRefused("{" + EntryOf("w", "F32", "[2]", 8, 0) + "}", {"do not fit", "bytes 8 to 0"});
    ExpectHeaderRefused("{" + EntryOf("w", "F32", "[0]", 8, 0) + "}", {"do not fit", "bytes 8 to 0"});
}

// O65
TEST_F(Safetensors, RefusesAFileShorterThanItsOffsetsWithBothSizes) {
    const std::string json = "{" + EntryOf("w", "F32", "[1000, 1000]", 0, 4000000) + "}";
    ExpectRefused(FileOf(json, DataOf(1)), {"cut short", StrCat("got ", 8 + json.size() + 4, " bytes"),
                                            StrCat("wanted ", 8 + json.size() + 4000000)});
}

// O66
TEST_F(Safetensors, RefusesAShapeWhoseProductWraps) {
    for (const std::string shape : {"[4294967296, 4294967296]", "[4294967296, 4294967296, 0]",
                                    "[4294967296, 1073741824]", "[4503599627370496, 1024, 4]"}) {
        for (const std::string dtype : {"F32", "BF16", "U8"}) {
            ExpectRefused(FileOf("{" + EntryOf("w", dtype, shape, 0, 4) + "}", DataOf(1)), {"\"w\""});
        }
    }
    // In 64 bits the first is of 0 bytes, the second, of 2^59 + 1 elements, of 4.
    ExpectRefused(FileOf("{" + EntryOf("w", "F32", "[4294967296, 4294967296]", 0, 0) + "}", ""),
                  {"\"w\"", "do not fit"});
    ExpectRefused(FileOf("{" + EntryOf("w", "F32", "[315916329, 1824726041]", 0, 4) + "}", DataOf(1)),
                  {"\"w\"", "do not fit"});
    EXPECT_EQ(Open(FileOf("{" + EntryOf("w", "F32", "[0, 4294967296, 4294967296]", 0, 0) + "}", "")).shape("w"),
              (Shape{0, int64_t{1} << 32, int64_t{1} << 32}));
}

TEST_F(Safetensors, TakesEightAxesAtMost) {
    EXPECT_EQ(Open(FileOf("{" + EntryOf("w", "F32", "[1,1,1,1,2,1,1,1]", 0, 8) + "}", DataOf(2))).shape("w").size(),
              8u);
    ExpectHeaderRefused("{" + EntryOf("w", "F32", "[1,1,1,1,2,1,1,1,1]", 0, 8) + "}", {"\"w\"", "too many axes"});
    std::string many = "[1";
    for (int i = 0; i < 100000; ++i) {
        many += ",1";
    }
    ExpectHeaderRefused("{" + EntryOf("w", "F64", many + "]", 0, 8) + "}", {"\"w\"", "too many axes"});
}

// O67
TEST_F(Safetensors, RefusesAFileCutByOneByteOrOneTensorByItsName) {
    const std::string bytes = FileOf(kSmallHeader, DataOf(8));
    for (const size_t cut : {size_t{1}, size_t{4}, size_t{20}, size_t{32}}) {
        ExpectRefused(bytes.substr(0, bytes.size() - cut),
                      {"cut short", StrCat("got ", bytes.size() - cut), StrCat("wanted ", bytes.size())});
    }
    for (size_t size = 0; size < bytes.size(); ++size) {
        ExpectRefused(bytes.substr(0, size), {StrCat("got ", size, " bytes")});
    }
    ExpectRefused(bytes + "x", {"after the last tensor"});
}

// O71
TEST_F(Safetensors, AcceptsEmptyTensorsWhereverOthersBegin) {
    const std::string full = EntryOf("w", "F32", "[2]", 0, 8) + "," + EntryOf("v", "F32", "[1]", 8, 12);
    for (const uint64_t place : {0u, 8u, 12u}) {
        for (const std::string name : {"a", "z"}) {
            const std::string empty = EntryOf(name, "F32", "[0, 4]", place, place);
            for (const std::string& json : {"{" + full + "," + empty + "}", "{" + empty + "," + full + "}"}) {
                const WeightFile file = Open(FileOf(json, DataOf(3)));
                EXPECT_EQ(file.shape(name), (Shape{0, 4}));  // which is that of no weight
                EXPECT_TRUE(Values(file, name).empty());
                EXPECT_EQ(Values(file, "w"), Counting(1, 2));
                EXPECT_EQ(Values(file, "v"), Counting(3, 1));
            }
        }
    }
    ExpectRefused(FileOf("{" + full + "," + EntryOf("a", "F32", "[0]", 4, 4) + "}", DataOf(3)), {"overlaps"});
    ExpectRefused(FileOf("{" + full + "," + EntryOf("a", "F32", "[0]", 16, 16) + "}", DataOf(3)), {"\"a\"", "hole"});
    ExpectRefused(FileOf("{" + full + "," + EntryOf("a", "F32", "[0]", 0, 8) + "}", DataOf(3)), {"\"a\"", "fit"});
}

TEST_F(Safetensors, RefusesHolesAndOverlaps) {
    const std::string first = "{" + EntryOf("a", "F32", "[1]", 0, 4) + ",";
    ExpectRefused(FileOf(first + EntryOf("b", "F32", "[1]", 8, 12) + "}", DataOf(3)),
                  {"\"b\" has a hole before it", "got begin 8", "wanted 4"});
    ExpectRefused(FileOf(first + EntryOf("b", "F32", "[2]", 2, 10) + "}", DataOf(3)), {"\"b\" overlaps"});
    ExpectRefused(FileOf(first + EntryOf("b", "F32", "[1]", 0, 4) + "}", DataOf(1)), {"\"b\" overlaps"});
    ExpectRefused(FileOf("{" + EntryOf("a", "F32", "[1]", 4, 8) + "}", DataOf(2)), {"\"a\" has a hole", "wanted 0"});
}

TEST_F(Safetensors, ReportsTheFirstRuleThatDoesNotHold) {
    const std::string hole = EntryOf("h", "F32", "[1]", 4, 8);
    const std::string misfit = EntryOf("m", "F32", "[3]", 0, 4);
    const std::string unknown = EntryOf("u", "F31", "[1]", 0, 4);
    const std::string nine = EntryOf("n", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4);
    const std::string half = EntryOf("f", "F16", "[2]", 0, 4);
    ExpectHeaderRefused("{" + half + "," + hole + "," + nine + "," + unknown + "," + unknown + "}", {"duplicate"});
    ExpectHeaderRefused("{" + half + "," + hole + "," + misfit + "," + unknown + "}", {"unknown dtype"});
    ExpectHeaderRefused("{" + half + "," + hole + "," + misfit + "}", {"do not fit"});
    ExpectHeaderRefused("{" + EntryOf("f", "F16", "[1]", 0, 2) + "," + hole + "}", {"hole"});
}

// O73
TEST_F(Safetensors, AFlippedByteInTheHeaderIsRefusedOrLoads) {
    const std::string bytes = FileOf(kSmallHeader, DataOf(8));
    const auto open_and_read = [&] {
        const WeightFile file = OpenSafetensors(path_);
        for (const std::string name : {"a", "b", "scalar"}) {
            if (file.Contains(name)) {
                Values(file, name);
            }
        }
    };
    WriteTextFile(path_, bytes);
    // What loads has another name, key of the metadata or white space.
    EXPECT_GT(NumRefusedFlips(path_, 8 + kSmallHeader.size(), 1000, open_and_read), 800);
    EXPECT_EQ(NumRefusedFlips(path_, 8, 100, open_and_read), 100);
    EXPECT_EQ(Values(OpenSafetensors(path_), "b"), Counting(4, 4));
}

// --- Files of Hugging Face.

TEST(SafetensorsReference, HasTheEmbeddingsOfTheLlmcFile) {
    for (const std::string& folder : ReferenceFolders()) {
        const std::string path = folder + "/gpt2_tiny_hf/model.safetensors";
        if (!std::filesystem::exists(path)) {
            continue;
        }
        const WeightFile file = OpenSafetensors(path);
        const LlmcGpt2File llmc = OpenLlmcGpt2(folder + "/gpt2_tiny.bin");
        const Shape& shape = file.shape("wte.weight");
        EXPECT_EQ(shape, (Shape{llmc.header.vocab_size, llmc.header.num_channels}));
        std::vector<float> wanted(static_cast<size_t>(NumElements(shape)));
        llmc.weights.ReadRows("wte.weight", 0, llmc.header.vocab_size, wanted.data());
        EXPECT_EQ(Values(file, "wte.weight"), wanted);
        for (const std::string name : {"wpe.weight", "h.7.ln_2.bias", "ln_f.weight"}) {
            EXPECT_EQ(Values(file, name), Values(llmc.weights, name)) << name;
        }
    }
}

TEST(SafetensorsReference, ReadsAModelOfLlama) {
    for (const std::string& folder : ReferenceFolders()) {
        const std::string path = folder + "/llama_shakespeare_hf/model.safetensors";
        if (!std::filesystem::exists(path)) {
            continue;
        }
        const WeightFile file = OpenSafetensors(path);
        EXPECT_EQ(file.dtype(), DataType::kFloat32);
        EXPECT_EQ(file.shape("model.embed_tokens.weight"), (Shape{256, 64}));
        EXPECT_EQ(file.shape("model.layers.1.self_attn.k_proj.weight"), (Shape{16, 64}));
    }
}

}  // namespace
}  // namespace infini_train::checkpoint::test
