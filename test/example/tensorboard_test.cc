#include "example/common/tensorboard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "test/support/run_program.h"

namespace infini_train {
namespace {

using test::ReadTextFile;
using test::WriteTextFile;

// What TensorBoard 2.21's own classes serialise, without wall_time.
const std::string kVersion = "\032\015brain.Event:2";
const std::string kStepOne(
    "\020\001*\177\012\021\012\012train/loss\025\000\000`@\012\026\012\017train/"
    "grad_norm\025\000\000\300?\012\017\012\010"
    "train/lr\025\000\000\000>\012\031\012\022train/tokens_per_s\025\000\000\000E\012\017\012\010train/ms\025\000\000(A"
    "\012\025\012\016train/peak_mib\025\000\000@@",
    131);
const std::string kValidation("\020\254\002*\021\012\017\012\010val/loss\025\000\000\200>", 22);
const std::string kStart = "\020\003:\002\010\001";
const std::string kText =
    "\020\002*7\0125\012\015configurationB\032\010\007\022\004\022\002\010\001B\020    a=1\012    "
    "b=2\012J\010\012\006\012"
    "\004text";

uint32_t Masked(const std::string& bytes) {
    uint32_t crc = ~0u;
    for (const char byte : bytes) {
        crc ^= static_cast<uint8_t>(byte);
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
        }
    }
    return std::rotr(~crc, 15) + 0xa282ead8u;
}

template <typename T>
T At(const std::string& bytes, size_t offset) {
    T value = {};
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

std::string Framed(const std::string& record) {
    std::string frame(12 + record.size() + 4, '\0');
    const uint64_t size = record.size();
    std::memcpy(frame.data(), &size, sizeof(size));
    const uint32_t head = Masked(frame.substr(0, 8));
    const uint32_t tail = Masked(record);
    std::memcpy(frame.data() + 8, &head, sizeof(head));
    std::memcpy(frame.data() + 12, record.data(), record.size());
    std::memcpy(frame.data() + 12 + record.size(), &tail, sizeof(tail));
    return frame;
}

/// The records of a file, each checked against its checksums and without its wall time, which is from this century.
std::vector<std::string> Records(const std::string& path) {
    const std::string bytes = ReadTextFile(path);
    std::vector<std::string> records;
    for (size_t offset = 0; offset < bytes.size();) {
        const auto size = At<uint64_t>(bytes, offset);
        const std::string record = bytes.substr(offset + 12, size);
        EXPECT_EQ(bytes.substr(offset, 12 + size + 4), Framed(record));
        EXPECT_EQ(record[0], '\x09');
        EXPECT_GT(At<double>(record, 1), 1.7e9);
        records.push_back(record.substr(9));
        offset += 12 + size + 4;
    }
    return records;
}

StepMetrics MetricsOf(int64_t step) {
    return {.step = step,
            .loss = 3.5f,
            .grad_norm = 1.5f,
            .lr = 0.125f,
            .ms = 10.5,
            .tokens_per_s = 2048.0,
            .peak_bytes = 3 << 20};
}

class TensorBoardTest : public ::testing::Test {
 protected:
    /// In the order in which TensorBoard reads them.
    std::vector<std::string> Paths() const {
        std::vector<std::string> paths;
        for (const auto& entry : std::filesystem::directory_iterator(runs_)) {
            paths.push_back(entry.path().string());
        }
        std::sort(paths.begin(), paths.end());
        return paths;
    }

    std::vector<std::string> AllRecords() const {
        std::vector<std::string> all;
        for (const std::string& path : Paths()) {
            const std::vector<std::string> records = Records(path);
            all.insert(all.end(), records.begin(), records.end());
        }
        return all;
    }

    void WriteSteps(int64_t resume_step, int64_t last_step) const {
        TensorBoardWriter writer(runs_, resume_step);
        for (int64_t step = resume_step + 1; step <= last_step; ++step) {
            writer.WriteStep(MetricsOf(step));
        }
    }

    static std::string StepRecord(int64_t step) {
        std::string record = kStepOne;
        record[1] = static_cast<char>(step);
        return record;
    }

    test::TemporaryFolder folder_;
    std::string runs_ = folder_.File("a/run");
};

TEST_F(TensorBoardTest, FramesARecordAsTensorBoardDoes) {
    const std::string nine("\x09\0\0\0\0\0\0\0\x37\xf9\x71\x39\x31\x32\x33\x34\x35\x36\x37\x38\x39\xe5\xb0\x8a\xc7",
                           25);
    EXPECT_EQ(Framed("123456789"), nine);
}

TEST_F(TensorBoardTest, WritesTheBytesOfTheFormat) {
    {
        TensorBoardWriter writer(runs_);
        writer.WriteStep(MetricsOf(1));
        writer.WriteValidation(300, 0.25f);
        EXPECT_EQ(AllRecords(), (std::vector<std::string>{kVersion, kStepOne, kValidation})) << "while it is open";
    }
    const std::string name = std::filesystem::path(Paths().at(0)).filename().string();
    EXPECT_EQ(name.rfind("events.out.tfevents.", 0), 0u) << name;
    EXPECT_TRUE(name.ends_with(".infini_train")) << name;
}

TEST_F(TensorBoardTest, WritesTheConfigurationAsAText) {
    TensorBoardWriter writer(runs_, 2);
    writer.WriteConfiguration("a=1\nb=2\n");
    EXPECT_EQ(AllRecords(), (std::vector<std::string>{kVersion, kStart, kText}));
    writer.WriteConfiguration("\xff\n");
    EXPECT_NE(AllRecords().back().find("    \xef\xbf\xbd\n"), std::string::npos) << "bytes that are no UTF-8";
}

TEST_F(TensorBoardTest, GoesOnBehindTheStepOfTheCheckpoint) {
    WriteSteps(0, 5);
    WriteSteps(2, 4);
    EXPECT_EQ(AllRecords(), (std::vector<std::string>{kVersion, StepRecord(1), StepRecord(2), kVersion, kStart,
                                                      StepRecord(3), StepRecord(4)}));
    WriteSteps(3, 4);
    std::string start = kStart;
    start[1] = 4;
    EXPECT_EQ(AllRecords(), (std::vector<std::string>{kVersion, StepRecord(1), StepRecord(2), kVersion, kStart,
                                                      StepRecord(3), kVersion, start, StepRecord(4)}));
    EXPECT_EQ(Paths().size(), 3u) << "in one second";
}

TEST_F(TensorBoardTest, StartsAnewAtStepZeroAndLeavesTheFilesOfOthers) {
    WriteSteps(0, 5);
    const std::string other = runs_ + "/events.out.tfevents.1.host.0.0";
    WriteTextFile(other, "");
    WriteSteps(0, 1);
    EXPECT_EQ(Paths().size(), 2u);
    EXPECT_TRUE(std::filesystem::exists(other));
    EXPECT_EQ(AllRecords(), (std::vector<std::string>{kVersion, kStepOne}));
}

TEST_F(TensorBoardTest, DropsATornEnd) {
    WriteSteps(0, 3);
    const std::string path = Paths().at(0);
    const std::string whole = ReadTextFile(path);
    const size_t record = 12 + 9 + kStepOne.size() + 4;
    for (const size_t missing : {size_t{1}, size_t{4}, size_t{5}, size_t{100}, record - 12, record - 5, record - 1}) {
        std::filesystem::remove_all(runs_);
        std::filesystem::create_directories(runs_);
        WriteTextFile(path, whole.substr(0, whole.size() - missing));
        const TensorBoardWriter writer(runs_, 9);
        EXPECT_EQ(ReadTextFile(path), whole.substr(0, whole.size() - record)) << missing;
    }
}

TEST_F(TensorBoardTest, DropsWhatFollowsADamagedRecord) {
    WriteSteps(0, 3);
    const std::string path = Paths().at(0);
    const std::string whole = ReadTextFile(path);
    const size_t version = 12 + 9 + kVersion.size() + 4;
    const size_t record = 12 + 9 + kStepOne.size() + 4;
    for (const size_t damage : {size_t{0}, size_t{7}, size_t{8}, size_t{12}, size_t{50}, record - 1}) {
        std::string damaged = whole;
        damaged[version + record + damage] = static_cast<char>(damaged[version + record + damage] ^ 0x40);
        std::filesystem::remove_all(runs_);
        std::filesystem::create_directories(runs_);
        WriteTextFile(path, damaged);
        const TensorBoardWriter writer(runs_, 9);
        EXPECT_EQ(ReadTextFile(path), whole.substr(0, version + record)) << damage;
    }
}

TEST_F(TensorBoardTest, TakesNoSizeFromAHostileFile) {
    std::filesystem::create_directories(runs_);
    const std::string path = runs_ + "/events.out.tfevents.99999999999999999999.infini_train";
    const std::string good = Framed(std::string("\x10\x01", 2));
    std::string huge = Framed("x");
    for (const uint64_t size : {uint64_t{2}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 15}) {
        std::memcpy(huge.data(), &size, sizeof(size));
        const uint32_t crc = Masked(huge.substr(0, 8));
        std::memcpy(huge.data() + 8, &crc, sizeof(crc));
        WriteTextFile(path, good + huge);
        const TensorBoardWriter writer(runs_, 9);
        EXPECT_EQ(ReadTextFile(path), good) << size;
    }
    for (const std::string record :
         {"\x10", "\x10\xff\xff", "\x1a\x05xx", "\x0b", "\x09\x01\x02", "\x15\x01",
          "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
        WriteTextFile(path, good + Framed(record));
        const TensorBoardWriter writer(runs_, 9);
        EXPECT_EQ(ReadTextFile(path), good) << ::testing::PrintToString(record);
    }
}

TEST_F(TensorBoardTest, KeepsWhatIsNotFiniteAsItIs) {
    TensorBoardWriter writer(runs_);
    writer.WriteValidation(1, std::numeric_limits<float>::infinity());
    const std::string record = AllRecords().back();
    EXPECT_EQ(At<float>(record, record.size() - 4), std::numeric_limits<float>::infinity());
}

TEST_F(TensorBoardTest, SaysWhatCannotBeWritten) {
    WriteTextFile(folder_.File("file"), "");
    try {
        const TensorBoardWriter writer(folder_.File("file"));
        FAIL() << "a file is no folder";
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).rfind("--tensorboard " + folder_.File("file") + ": ", 0), 0u)
            << error.what();
    }
    TensorBoardWriter none("");
    none.WriteStep(MetricsOf(1));
    none.WriteConfiguration("a=1");
}

}  // namespace
}  // namespace infini_train
