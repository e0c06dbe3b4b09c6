#include "example/common/run_fingerprint.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

#include "example/common/flags.h"
#include "example/common/pipeline_setup.h"
#include "example/gpt2/spec.h"
#include "test/support/run_program.h"

namespace infini_train {
namespace {

const std::string kReference = std::string(INFINI_SOURCE_DIR) + "/test/reference/";
const std::string kWeights = kReference + "gpt2_tiny.bin";

ProgramOptions Options() {
    ProgramOptions options;
    options.llmc_filepath = kWeights;
    options.pipeline_parallel = 2;
    options.batch_size = 2;
    options.sequence_length = 16;
    options.total_batch_size = 128;
    return options;
}

/// Of a run of two processes.
std::string Fingerprint(const ProgramOptions& options, const std::string& flags = "",
                        const data::TokenDataset* train = nullptr) {
    const ModelSpec model = gpt2::MakeModel(options);
    const PipelineSetup setup = MakePipelineSetup(options, model, {.num_processes = 2});
    return RunFingerprint({.options = &options, .model = &model, .setup = &setup, .train = train}, flags);
}

/// The names of the lines that two fingerprints do not have alike, with a blank behind each.
std::string DifferentLines(const std::string& one, const std::string& other) {
    std::istringstream lines(one);
    std::istringstream other_lines(other);
    std::string names;
    for (std::string line, other_line; std::getline(lines, line) && std::getline(other_lines, other_line);) {
        names += line == other_line ? "" : line.substr(0, line.find('=')) + " ";
    }
    return names;
}

TEST(RunFingerprint, ComparesFlagsButForPlacesAndWhatProcess0Writes) {
    const std::string lines = Fingerprint(Options(),
                                          "learning_rate=0.1\nsave=a\ninput_bin=b\nthreads_per_rank=3\nmetrics_file=c\n"
                                          "tensorboard=d\nplan_json=e\nprint_plan=true\ndevice=auto\nseed=7\n");
    EXPECT_NE(lines.find("\nlearning_rate=0.1\nsave=a\nseed=7\ndevice=cpu\nconfig="), std::string::npos) << lines;
}

// All ranks hand in their timelines where one is to be written.
TEST(RunFingerprint, ComparesWhetherThereIsATimelineAndNotWhere) {
    EXPECT_EQ(Fingerprint(Options(), "timeline=a.svg\nreport=\n"), Fingerprint(Options(), "timeline=b.svg\nreport=\n"));
    EXPECT_EQ(DifferentLines(Fingerprint(Options(), "timeline=a.svg\nreport=\n"),
                             Fingerprint(Options(), "timeline=\nreport=r.html\n")),
              "timeline report ");
}

// bugs.csv O86
TEST(RunFingerprint, SeesOtherWeights) {
    const test::TemporaryFolder folder;
    const std::string path = folder.File("copy.bin");
    ProgramOptions other = Options();
    other.llmc_filepath = path;
    std::filesystem::copy_file(kWeights, path);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    EXPECT_EQ(Fingerprint(other), Fingerprint(Options())) << "the same bytes in another place";
    // The middle of the last tensor, the bias of the last norm: kNumChannels float32 at the end of the file.
    constexpr int kNumChannels = 32;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4 * kNumChannels / 2, std::ios::end);
    file.write("\1\2\3", 3);
    file.close();
    EXPECT_EQ(DifferentLines(Fingerprint(other), Fingerprint(Options())), "weights ");
    other.llmc_filepath = kReference + "gpt2_tiny_bf16.bin";
    EXPECT_EQ(DifferentLines(Fingerprint(other), Fingerprint(Options())), "weights ");
}

TEST(RunFingerprint, SeesAnotherModel) {
    ProgramOptions other = Options();
    other.llmc_filepath = "";
    other.model = "tiny";
    EXPECT_EQ(DifferentLines(Fingerprint(other), Fingerprint(Options())), "config weights plan ");
}

TEST(RunFingerprint, SeesAnotherPlan) {
    ProgramOptions other = Options();
    other.pipeline_schedule = "1f1b";
    EXPECT_EQ(DifferentLines(Fingerprint(other), Fingerprint(Options())), "plan ");
    other = Options();
    other.total_batch_size = 64;
    EXPECT_EQ(DifferentLines(Fingerprint(other), Fingerprint(Options())), "plan ");
    other = Options();
    other.pipeline_parallel = 1;
    EXPECT_EQ(DifferentLines(Fingerprint(other), Fingerprint(Options())), "plan ");
}

TEST(RunFingerprint, SeesOtherTokens) {
    const test::TemporaryFolder folder;
    const auto tokens_of = [&](const std::string& name, const std::string& text) {
        test::WriteTextFile(folder.File(name), text);
        return data::TokenDataset(folder.File(name), Options().sequence_length);
    };
    std::string text;
    for (int i = 0; i < 1000; ++i) {
        text += static_cast<char>('a' + i * i % 26);
    }
    const data::TokenDataset dataset = tokens_of("a.txt", text);
    const data::TokenDataset copy = tokens_of("b.txt", text);
    text[500] = 'A';
    const data::TokenDataset changed = tokens_of("c.txt", text);
    const data::TokenDataset longer = tokens_of("d.txt", text + "x");
    const std::string lines = Fingerprint(Options(), "", &dataset);
    EXPECT_EQ(Fingerprint(Options(), "", &copy), lines);
    EXPECT_EQ(DifferentLines(Fingerprint(Options(), "", &changed), lines), "tokens ");
    EXPECT_EQ(DifferentLines(Fingerprint(Options(), "", &longer), lines), "tokens ");
    EXPECT_EQ(DifferentLines(Fingerprint(Options()), lines), "tokens ");
}

TEST(RunFingerprint, FitsIntoAHello) {
    EXPECT_LT(Fingerprint(Options(), FlagsFingerprint()).size(), 10000u);
}

}  // namespace
}  // namespace infini_train
