#include "infini_train/include/checkpoint/weight_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/file.h"
#include "test/checkpoint/llmc_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;

class WeightFileTest : public testing::Test {
 protected:
    std::shared_ptr<const ReadOnlyFile> FileWith(const std::string& bytes) {
        WriteTextFile(path_, bytes);
        return std::make_shared<const ReadOnlyFile>(path_);
    }

    TemporaryFolder folder_;
    std::string path_ = folder_.File("weights.bin");
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
    std::string bytes;
    Append(bytes, values.data(), values.size() * sizeof(T));
    return bytes;
}

TEST_F(WeightFileTest, ReadsWholeTensorsAndRowsOfThem) {
    const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
    const WeightFile file(FileWith("xyz" + BytesOf(values)), {{"a", {.offset = 3, .shape = {3, 2}}},
                                                              {"b", {.offset = 3 + 24, .shape = {2}}},
                                                              {"scalar", {.offset = 3 + 28, .shape = {}}},
                                                              {"empty", {.offset = 3, .shape = {0, 2}}}});
    EXPECT_TRUE(file.Contains("a"));
    EXPECT_FALSE(file.Contains("c"));
    EXPECT_EQ(file.path(), path_);
    EXPECT_EQ(file.shape("a"), (Shape{3, 2}));
    EXPECT_EQ(Values(file, "a"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(Values(file, "b"), (std::vector<float>{7, 8}));
    EXPECT_EQ(Values(file, "scalar"), (std::vector<float>{8}));
    EXPECT_TRUE(Values(file, "empty").empty());
    std::vector<float> rows(2, -1.0f);
    file.ReadRows("a", 1, 1, rows.data());
    EXPECT_EQ(rows, (std::vector<float>{-1, -1}));
    file.ReadRows("a", 1, 2, rows.data());
    EXPECT_EQ(rows, (std::vector<float>{3, 4}));
    ExpectRefusal([&] { file.shape("c"); }, {path_, "c"});
    ExpectRefusal([&] { file.Read("c", rows.data()); }, {path_, "c"});
}

TEST_F(WeightFileTest, WidensBFloat16ExactlyOverManyChunks) {
    constexpr size_t kCount = 2 * (size_t{1} << 17) + 7;
    std::vector<BFloat16> stored(kCount);
    std::vector<float> wanted(kCount);
    for (size_t i = 0; i < kCount; ++i) {
        stored[i].bits = static_cast<uint16_t>(i);
        wanted[i] = static_cast<float>(stored[i]);
    }
    const WeightFile file(FileWith(BytesOf(stored)),
                          {{"a", {.shape = {static_cast<int64_t>(kCount)}, .dtype = DataType::kBFloat16}}});
    EXPECT_EQ(file.dtype(), DataType::kBFloat16);
    EXPECT_EQ(BytesOf(Values(file, "a")), BytesOf(wanted));  // as bytes: some are NaN
    std::vector<float> rows(2);
    file.ReadRows("a", 1000, 1002, rows.data());
    EXPECT_EQ(rows, (std::vector<float>{wanted[1000], wanted[1001]}));
}

TEST_F(WeightFileTest, IsFloat32WhenTheDtypesDiffer) {
    const WeightFile file(FileWith(std::string(8, '\0')),
                          {{"a", {.shape = {1}}}, {"b", {.offset = 4, .shape = {2}, .dtype = DataType::kBFloat16}}});
    EXPECT_EQ(file.dtype(), DataType::kFloat32);
}

TEST_F(WeightFileTest, PaddingRowsReadAsZeroWhateverTheFileHolds) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> values = {1, 2, 3, 4, nan, nan, nan, nan};
    const WeightFile file(FileWith(BytesOf(values)), {{"a", {.shape = {4, 2}, .num_padding_rows = 2}}});
    EXPECT_EQ(Values(file, "a"), (std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0}));
    std::vector<float> rows(4, -1.0f);
    file.ReadRows("a", 1, 3, rows.data());
    EXPECT_EQ(rows, (std::vector<float>{3, 4, 0, 0}));
    file.ReadRows("a", 3, 4, rows.data());
    EXPECT_EQ(rows, (std::vector<float>{0, 0, 0, 0}));
    file.ReadRows("a", 0, 2, rows.data());
    EXPECT_EQ(rows, (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(WeightFileTest, TouchesTheBytesOfATensorAloneAndReportsThatTheyAreGone) {
    const WeightFile file(FileWith(BytesOf(Counting(1, 4))), {{"first", {.shape = {2}}}, {"a", {.shape = {4}}}});
    ASSERT_EQ(truncate(path_.c_str(), 9), 0);
    EXPECT_EQ(Values(file, "first"), Counting(1, 2));
    ExpectRefusal([&] { Values(file, "a"); }, {path_, "ends too early", "got 9 bytes", "wanted at least 16"});
}

TEST_F(WeightFileTest, RefusesWhatIsNotARegularFile) {
    ExpectRefusal([&] { ReadOnlyFile{path_}; }, {path_, "No such file"});
    ExpectRefusal([&] { ReadOnlyFile{folder_.File("")}; }, {"not a regular file"});
    ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
    ExpectRefusal([&] { ReadOnlyFile{path_}; }, {path_, "not a regular file"});  // and does not wait for a writer
}

using WeightFileDeathTest = WeightFileTest;

TEST_F(WeightFileDeathTest, ATensorOutsideTheFileIsABugOfTheReader) {
    const auto file = FileWith(std::string(16, '\0'));
    EXPECT_DEATH(WeightFile(file, {{"a", {.offset = 4, .shape = {4}}}}), "a \\[4\\] at byte 4");
    EXPECT_DEATH(WeightFile(file, {{"a", {.offset = ~uint64_t{0}, .shape = {4}}}}), "at byte");
    const WeightFile weights(file, {{"a", {.shape = {4}}}});
    EXPECT_DEATH(weights.ReadRows("a", 0, 5, nullptr), "rows 0 to 5 of 4");
}

}  // namespace
}  // namespace infini_train::checkpoint::test
