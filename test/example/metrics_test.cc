#include "example/common/metrics.h"

#include <unistd.h>

#include <cmath>
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

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string Line(int64_t step) {
    return "{\"step\":" + std::to_string(step) + ",\"loss\":0.5}\n";
}

std::string ValidationLine(int64_t step) {
    return "{\"step\":" + std::to_string(step) + ",\"val_loss\":0.25}\n";
}

std::string ErrorOf(const std::string& path, int64_t resume_step) {
    try {
        const MetricsFile file(path, resume_step);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

class MetricsFileTest : public ::testing::Test {
 protected:
    test::TemporaryFolder folder_;
    std::string path_ = folder_.File("metrics.jsonl");
};

TEST_F(MetricsFileTest, PrintsFloatsThatReadBackToTheSameBits) {
    const StepMetrics written = {.step = 3,
                                 .loss = 0.1f,
                                 .grad_norm = 1.0f / 3.0f,
                                 .lr = 3e-4f,
                                 .ms = 12.5,
                                 .tokens_per_s = 1e5 / 3.0,
                                 .peak_bytes = int64_t{1} << 40};
    {
        MetricsFile file(path_);
        file.WriteStep(written);
        file.WriteValidation(3, 0.7f);
    }
    std::vector<StepMetrics> steps;
    std::vector<float> val_losses;
    const MetricsFile file(path_, 3,
                           {.on_step = [&](const StepMetrics& metrics) { steps.push_back(metrics); },
                            .on_validation =
                                [&](int64_t step, float val_loss) {
                                    EXPECT_EQ(step, 3);
                                    val_losses.push_back(val_loss);
                                }});
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0].step, 3);
    EXPECT_EQ(steps[0].loss, written.loss);
    EXPECT_EQ(steps[0].grad_norm, written.grad_norm);
    EXPECT_EQ(steps[0].lr, written.lr);
    EXPECT_EQ(steps[0].ms, written.ms);
    EXPECT_EQ(steps[0].tokens_per_s, written.tokens_per_s);
    EXPECT_EQ(steps[0].peak_bytes, written.peak_bytes);
    EXPECT_EQ(val_losses, std::vector<float>{0.7f});
}

TEST_F(MetricsFileTest, WritesNullForWhatIsNotFinite) {
    MetricsFile file(path_);
    file.WriteStep({.step = 1, .loss = kNan, .grad_norm = std::numeric_limits<float>::infinity()});
    file.WriteValidation(1, kNan);
    EXPECT_EQ(
        ReadTextFile(path_),
        "{\"step\":1,\"loss\":null,\"grad_norm\":null,\"lr\":0.0,\"ms\":0.0,\"tokens_per_s\":0.0,\"peak_bytes\":0}\n"
        "{\"step\":1,\"val_loss\":null}\n");
    float loss = 0.0f;
    const MetricsFile again(path_, 1, {.on_step = [&](const StepMetrics& metrics) { loss = metrics.loss; }});
    EXPECT_TRUE(std::isnan(loss));
}

TEST_F(MetricsFileTest, StartsAnewAtStepZero) {
    WriteTextFile(path_, "notes of somebody\n");
    MetricsFile file(path_);
    file.WriteValidation(1, 0.25f);
    EXPECT_EQ(ReadTextFile(path_), ValidationLine(1));
}

TEST_F(MetricsFileTest, GoesOnBehindTheStepOfTheCheckpoint) {
    const std::string kept = Line(1) + Line(2) + ValidationLine(2) + Line(3) + ValidationLine(3);
    for (const std::string later : {"", "{\"step\":4,\"loss\":9.5}\n", "{\"step\":4,\"loss\":9.5}\n{\"step\":5,\"lo",
                                    "{\"step\":3,\"val_loss\":7.5}"}) {
        WriteTextFile(path_, kept + later);
        MetricsFile file(path_, 3);
        EXPECT_EQ(ReadTextFile(path_), kept) << later;
        file.WriteValidation(4, 0.25f);
        EXPECT_EQ(ReadTextFile(path_), kept + ValidationLine(4)) << later;
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(std::filesystem::path(path_).parent_path()), {}), 1)
        << "files that were left behind";
}

TEST_F(MetricsFileTest, KeepsNoLineOfARunThatWentAnotherWay) {
    WriteTextFile(path_, Line(1) + Line(9) + Line(2) + Line(3));
    const MetricsFile file(path_, 2);
    EXPECT_EQ(ReadTextFile(path_), Line(1) + Line(2));
}

TEST_F(MetricsFileTest, MakesAFileThatIsNotThereYet) {
    MetricsFile file(path_, 7);
    file.WriteValidation(8, 0.25f);
    EXPECT_EQ(ReadTextFile(path_), ValidationLine(8));
}

TEST_F(MetricsFileTest, LeavesAFileThatIsNotOfMetricsAsItIs) {
    for (const std::string line : {"notes", "", "[1]", "3", "{}", R"({"step":"1","loss":2})", R"({"step":-1,"loss":2})",
                                   R"({"step":1.5,"loss":2})", R"({"step":18446744073709551615,"loss":2})",
                                   R"({"step":1})", R"({"step":1,"loss":2} {"step":2,"loss":2})"}) {
        const std::string text = Line(1) + line + "\n" + Line(9);
        WriteTextFile(path_, text);
        EXPECT_EQ(ErrorOf(path_, 5).rfind("--metrics_file " + path_ + " line 2: is not of a metrics file", 0), 0u)
            << line << ": " << ErrorOf(path_, 5);
        EXPECT_EQ(ReadTextFile(path_), text);
    }
}

TEST_F(MetricsFileTest, TakesHostileValuesForMissingOnes) {
    WriteTextFile(path_, "{\"step\":1,\"loss\":1e300,\"grad_norm\":\"x\",\"peak_bytes\":-5}\n");
    int count = 0;
    const MetricsFile file(path_, 1, {.on_step = [&](const StepMetrics& metrics) {
                               EXPECT_TRUE(std::isnan(metrics.loss));
                               EXPECT_TRUE(std::isnan(metrics.grad_norm));
                               EXPECT_TRUE(std::isnan(metrics.ms));
                               EXPECT_EQ(metrics.peak_bytes, 0);
                               ++count;
                           }});
    EXPECT_EQ(count, 1);
}

TEST_F(MetricsFileTest, ReplacesTheFileBehindALink) {
    const std::string link = folder_.File("link");
    WriteTextFile(path_, Line(1) + Line(2));
    std::filesystem::create_symlink(path_, link);
    MetricsFile file(link, 1);
    file.WriteValidation(2, 0.25f);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(ReadTextFile(path_), Line(1) + ValidationLine(2));
}

TEST_F(MetricsFileTest, WritesToStdoutBetweenItsOtherLines) {
    const std::string out = folder_.File("out");
    std::fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    ASSERT_NE(std::freopen(out.c_str(), "w", stdout), nullptr);
    std::printf("before\n");
    std::fflush(stdout);
    {
        MetricsFile file("/dev/stdout", 3);
        file.WriteValidation(4, 0.25f);
        std::printf("after\n");
        std::fflush(stdout);
    }
    dup2(saved, STDOUT_FILENO);
    close(saved);
    EXPECT_EQ(ReadTextFile(out), "before\n" + ValidationLine(4) + "after\n");
    EXPECT_TRUE(std::filesystem::is_symlink("/dev/stdout"));
}

TEST_F(MetricsFileTest, SaysWhatCannotBeWritten) {
    const std::string nowhere = folder_.File("no/such/folder");
    EXPECT_EQ(ErrorOf(nowhere, 0), "--metrics_file " + nowhere + ": cannot be written");
    EXPECT_EQ(ErrorOf(nowhere, 3), "--metrics_file " + nowhere + ": cannot be written");
    MetricsFile full("/dev/full", 3);
    EXPECT_THROW(full.WriteValidation(4, 0.5f), Error);
    MetricsFile none("", 3);
    none.WriteValidation(4, 0.5f);
}

TEST(SpikeDetector, NotesALossFarAboveTheOnesBefore) {
    SpikeDetector detector({.window = 10, .min_steps = 4});
    for (int64_t step = 1; step <= 20; ++step) {
        EXPECT_EQ(detector.Add(step, step % 2 == 0 ? 3.1f : 2.9f), "") << step;
    }
    EXPECT_EQ(detector.Add(21, 3.55f), "") << "5.5 deviations";
    EXPECT_EQ(detector.Add(22, 2.9f), "");
    EXPECT_EQ(detector.Add(23, 9.0f).rfind("step 23: the loss 9.0000 is far above the 3.0", 0), 0u);
}

TEST(SpikeDetector, NotesAStretchOnceAndTheNextOneAgain) {
    SpikeDetector detector({.window = 10, .min_steps = 4});
    std::string noted;
    for (int64_t step = 1; step <= 40; ++step) {
        const bool is_high = step == 20 || step == 21 || step == 30;
        noted += detector.Add(step, is_high ? 50.0f : 3.0f + 0.01f * static_cast<float>(step % 3)).empty() ? "" : "x";
        noted += step == 25 ? "|" : "";
    }
    EXPECT_EQ(noted, "x|x");
}

TEST(SpikeDetector, KnowsNothingBeforeItHasSeenEnough) {
    SpikeDetector detector({.window = 10, .min_steps = 4});
    EXPECT_EQ(detector.Add(1, 1.0f) + detector.Add(2, 1.0f) + detector.Add(3, 1.0f) + detector.Add(4, 100.0f), "");
}

TEST(SpikeDetector, LeavesOutWhatIsNotFinite) {
    SpikeDetector detector({.window = 10, .min_steps = 4});
    for (int64_t step = 1; step <= 8; ++step) {
        EXPECT_EQ(detector.Add(step, step % 2 == 0 ? kNan : 2.0f), "");
    }
    EXPECT_EQ(detector.Add(9, std::numeric_limits<float>::infinity()), "");
    EXPECT_NE(detector.Add(10, 4.0f), "");
}

TEST(SpikeDetector, DoesNotTakeTheLastBitsOfAConstantLossForSpikes) {
    SpikeDetector detector({});
    for (int64_t step = 1; step <= 50; ++step) {
        EXPECT_EQ(detector.Add(step, 2.0f), "");
    }
    EXPECT_EQ(detector.Add(51, 2.00001f), "");
}

}  // namespace
}  // namespace infini_train
