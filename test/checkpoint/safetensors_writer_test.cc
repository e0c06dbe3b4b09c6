#include "infini_train/include/checkpoint/safetensors_writer.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/safetensors.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReadTextFile;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;

std::vector<SafetensorsWriter::Tensor> MixedTensors() {
    return {{.name = "b", .dtype = DataType::kBFloat16, .shape = {3, 1}},
            {.name = "empty", .shape = {0, 4}},
            {.name = "z", .shape = {2, 2}},
            {.name = "a", .dtype = DataType::kBFloat16, .shape = {}},
            {.name = "c", .shape = {1}}};
}

class SafetensorsWriterTest : public testing::Test {
 protected:
    size_t NumFilesInFolder() const {
        const std::filesystem::directory_iterator files(folder_.File(""));
        return static_cast<size_t>(std::distance(begin(files), end(files)));
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.File("model.safetensors");
};

TEST_F(SafetensorsWriterTest, TheWidestComeFirstThenNamesDecide) {
    const SafetensorsWriter writer(path_, MixedTensors());
    std::vector<std::string> names;
    for (const SafetensorsWriter::Tensor& tensor : writer.tensors()) {
        names.push_back(tensor.name);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"c", "empty", "z", "a", "b"}));
}

TEST_F(SafetensorsWriterTest, ValuesInAnyPiecesReadBack) {
    for (const size_t piece : {1, 2, 3, 9}) {
        SafetensorsWriter writer(path_, MixedTensors());
        const std::vector<float> values = Counting(1.0f, 9);
        for (size_t begin = 0; begin < values.size(); begin += piece) {
            writer.Append(std::span(values).subspan(begin).first(std::min(piece, values.size() - begin)));
        }
        writer.Commit();
        EXPECT_EQ(std::filesystem::file_size(path_), writer.size_bytes());
        const WeightFile file = OpenSafetensors(path_);
        EXPECT_EQ(Values(file, "c"), (std::vector<float>{1.0f}));
        EXPECT_EQ(Values(file, "z"), Counting(2.0f, 4));
        EXPECT_EQ(Values(file, "a"), (std::vector<float>{6.0f}));
        EXPECT_EQ(Values(file, "b"), Counting(7.0f, 3));
        EXPECT_EQ(file.shape("b"), (Shape{3, 1}));
        EXPECT_EQ(file.shape("empty"), (Shape{0, 4}));
    }
}

TEST_F(SafetensorsWriterTest, TheFileIsTheOneTheFormatDescribes) {
    SafetensorsWriter writer(path_, {{.name = "w", .shape = {1}}, {.name = "\"\n", .shape = {1}}});
    writer.Append(std::vector<float>{1.0f, 2.0f});
    writer.Commit();
    const std::string json =
        R"({"__metadata__":{"format":"pt"},"\"\n":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
        R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
    const size_t padded = (json.size() + 7) / 8 * 8;
    ASSERT_NE(padded, json.size());
    std::string wanted;
    Append(wanted, &padded, 8);
    wanted += json + std::string(padded - json.size(), ' ') + std::string("\0\0\x80\x3f\0\0\0\x40", 8);
    EXPECT_EQ(ReadTextFile(path_), wanted);
}

TEST_F(SafetensorsWriterTest, BfloatIsRoundedToNearestAlsoAcrossPieces) {
    const int64_t count = (int64_t{1} << 17) + 5;  // more than is narrowed at once
    SafetensorsWriter writer(path_, {{.name = "w", .dtype = DataType::kBFloat16, .shape = {count}}});
    std::vector<float> values(static_cast<size_t>(count), 1.0f + 0x1.8p-8f);
    values.back() = std::numeric_limits<float>::quiet_NaN();
    writer.Append(values);
    writer.Commit();
    const std::vector<float> read = Values(OpenSafetensors(path_), "w");
    EXPECT_EQ(std::vector<float>(read.begin(), read.end() - 1), std::vector<float>(read.size() - 1, 1.0f + 0x1p-7f));
    EXPECT_TRUE(std::isnan(read.back()));
}

TEST_F(SafetensorsWriterTest, NothingIsThereWithoutCommitAndTheOldFileStays) {
    WriteTextFile(path_, "old");
    {
        SafetensorsWriter writer(path_, {{.name = "w", .shape = {2}}});
        writer.Append(std::vector<float>{1.0f, 2.0f});
    }
    EXPECT_EQ(ReadTextFile(path_), "old");
    EXPECT_EQ(NumFilesInFolder(), 1u);
}

TEST_F(SafetensorsWriterTest, AHeaderThatReadersRefuseIsNotWritten) {
    std::vector<SafetensorsWriter::Tensor> tensors;
    for (int i = 0; i < 100; ++i) {
        tensors.push_back({.name = std::to_string(i) + std::string(1000000, 'n'), .shape = {1}});
    }
    ExpectRefusal([&] { SafetensorsWriter(path_, tensors); }, {path_, "100 tensors", "at most 100000000"});
    EXPECT_EQ(NumFilesInFolder(), 0u);
}

TEST_F(SafetensorsWriterTest, ADiskThatIsFullIsReported) {
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit small = {.rlim_cur = 2000, .rlim_max = limit.rlim_max};
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    try {
        SafetensorsWriter writer(path_, {{.name = "w", .shape = {1000}}});
        writer.Append(std::vector<float>(1000));
        writer.Commit();
    } catch (const Error& error) {
        message = error.what();
    }
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    std::signal(SIGXFSZ, old_handler);
    EXPECT_NE(message.find(path_ + ": cannot write: "), std::string::npos) << message;
    EXPECT_EQ(NumFilesInFolder(), 0u);
}

using SafetensorsWriterDeathTest = SafetensorsWriterTest;

TEST_F(SafetensorsWriterDeathTest, TooManyOrTooFewValuesAndDoubleNamesAreBugs) {
    EXPECT_DEATH(SafetensorsWriter(path_, {{.name = "w"}, {.name = "w"}}), "tensor w comes twice");
    EXPECT_DEATH(
        {
            SafetensorsWriter writer(path_, {{.name = "w", .shape = {2}}});
            writer.Append(std::vector<float>(1));
            writer.Commit();
        },
        "tensor w lacks 1 values");
    EXPECT_DEATH(
        {
            SafetensorsWriter writer(path_, {{.name = "w", .shape = {2}}});
            writer.Append(std::vector<float>(3));
        },
        "1 values after the last tensor");
}

}  // namespace
}  // namespace infini_train::checkpoint::test
