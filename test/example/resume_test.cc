#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "test/support/run_program.h"

// Trainings that are cut in two, or end early, against one that runs through.

namespace infini_train {
namespace {

using test::ProgramResult;
using test::ReadTextFile;
using test::TemporaryFolder;

const std::string kTokens = std::string(INFINI_SOURCE_DIR) + "/test/reference/text_u16.bin";
using Words = std::vector<std::string>;

Words Join(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

class Resume : public testing::Test {
 protected:
    /// Rows are few, so that the run is in its second epoch soon.
    Words Start() const {
        return {"--model",
                "tiny",
                "--input_bin",
                kTokens,
                "--batch_size",
                "2",
                "--sequence_length",
                "16",
                "--total_batch_size",
                "128",
                "--shuffle",
                "--dropout",
                "0.1",
                "--weight_decay",
                "0.1",
                "--grad_clip",
                "1",
                "--learning_rate",
                "1e-2",
                "--lr_decay_iterations",
                "8",
                "--final_lr_fraction",
                "0.1"};
    }
    ProgramResult Run(const Words& words) const { return test::RunProgram("gpt2", words, 100); }
    std::string File(const std::string& name) const { return folder_.File(name); }
    /// Losses, norms and learning rates of all steps, as they were written.
    std::string Numbers(const std::string& name) const {
        std::string numbers;
        std::istringstream lines(ReadTextFile(File(name)));
        for (std::string line; std::getline(lines, line);) {
            const auto json = nlohmann::json::parse(line);
            numbers += json["step"].dump() + " " + json["loss"].dump() + " " + json["grad_norm"].dump() + " " +
                       json["lr"].dump() + "\n";
        }
        return numbers;
    }
    void ExpectSameFolders(const std::string& one, const std::string& other) const {
        int num_files = 0;
        for (const auto& entry : std::filesystem::directory_iterator(File(one))) {
            const std::string name = entry.path().filename().string();
            ++num_files;
            if (name != "trainer_state.json" && name != "manifest.json") {  // these hold the flags of the run
                EXPECT_TRUE(ReadTextFile(entry.path().string()) == ReadTextFile(File(other) + "/" + name)) << name;
            }
        }
        EXPECT_GT(num_files, 20);
    }

    TemporaryFolder folder_;
};

TEST_F(Resume, GivesTheBitsOfARunThatWasNotCutOnAnyLayout) {
    ASSERT_EQ(Run(Join(Start(), {"--num_iteration", "8", "--metrics_file", File("whole"), "--save", File("whole_ck")}))
                  .exit_code,
              0);
    const std::vector<std::pair<Words, Words>> layouts = {
        {{}, {}},
        {{"--pipeline_parallel", "3"}, {"--pipeline_parallel", "2", "--pipeline_schedule", "interleaved"}},
        {{"--pipeline_parallel", "2", "--pipeline_schedule", "1f1b"}, {"--pipeline_parallel", "8"}},
    };
    for (size_t i = 0; i < layouts.size(); ++i) {
        const std::string name = "cut" + std::to_string(i);
        const std::string folder = name + "_ck";
        const Words files = {"--metrics_file", File(name), "--save", File(folder)};
        ASSERT_EQ(Run(Join(Join(Start(), files), Join({"--num_iteration", "3"}, layouts[i].first))).exit_code, 0);
        // Twice, and all flags but the length from the checkpoint.
        for (const std::string end : {"5", "8"}) {
            const ProgramResult result =
                Run(Join(Join({"--load", File(folder), "--num_iteration", end}, files), layouts[i].second));
            ASSERT_EQ(result.exit_code, 0) << result.err;
        }
        EXPECT_EQ(Numbers(name), Numbers("whole")) << i;
        ExpectSameFolders("whole_ck/step_00000008", folder + "/step_00000008");
    }
}

TEST_F(Resume, KeepsTheNewestAndGoesOnFromTheLatest) {
    const Words words = Join(Start(), {"--save", File("ck"), "--save_every", "1", "--keep", "2", "--load", "latest",
                                       "--metrics_file", File("m")});
    const ProgramResult fresh = Run(Join(words, {"--num_iteration", "3"}));
    ASSERT_EQ(fresh.exit_code, 0) << fresh.err;
    EXPECT_NE(fresh.out.find("there is no checkpoint in"), std::string::npos) << fresh.out;
    const ProgramResult second = Run(Join(words, {"--num_iteration", "5"}));
    ASSERT_EQ(second.exit_code, 0) << second.err;
    EXPECT_NE(second.out.find("goes on after step 3 of"), std::string::npos) << second.out;
    std::vector<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(File("ck"))) {
        left.push_back(entry.path().filename().string());
    }
    std::sort(left.begin(), left.end());
    EXPECT_EQ(left, (std::vector<std::string>{"step_00000004", "step_00000005"}));
    const std::string numbers = Numbers("m");
    EXPECT_EQ(std::count(numbers.begin(), numbers.end(), '\n'), 5);
}

TEST_F(Resume, AKilledRunGoesOnAsIfItHadNotBeen) {
    ASSERT_EQ(Run(Join(Start(), {"--num_iteration", "8", "--metrics_file", File("whole")})).exit_code, 0);
    const Words words = Join(Start(), {"--num_iteration", "8", "--metrics_file", File("m"), "--save", File("ck"),
                                       "--save_every", "1", "--load", "latest"});
    for (const useconds_t delay_us : {150'000, 250'000, 400'000}) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            std::vector<std::string> all = Join({std::string(INFINI_BINARY_DIR) + "/gpt2"}, words);
            std::vector<char*> argv;
            for (std::string& word : all) {
                argv.push_back(word.data());
            }
            argv.push_back(nullptr);
            fclose(stdout);
            execv(argv[0], argv.data());
            _exit(127);
        }
        usleep(delay_us);
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
    }
    const ProgramResult last = Run(words);
    ASSERT_EQ(last.exit_code, 0) << last.err;
    EXPECT_EQ(Numbers("m"), Numbers("whole"));
}

TEST_F(Resume, ASignalSavesAfterTheStepAndTheRunGoesOnFromThere) {
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
        const std::string name = std::to_string(signal);
        const Words words =
            Join(Start(), {"--num_iteration", "100000", "--metrics_file", File(name), "--save", File(name + "_ck")});
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            std::vector<std::string> all = Join({std::string(INFINI_BINARY_DIR) + "/gpt2"}, words);
            std::vector<char*> argv;
            for (std::string& word : all) {
                argv.push_back(word.data());
            }
            argv.push_back(nullptr);
            fclose(stdout);
            execv(argv[0], argv.data());
            _exit(127);
        }
        while (!std::filesystem::exists(File(name)) || ReadTextFile(File(name)).empty()) {
            usleep(10'000);
        }
        kill(child, signal);
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
        const std::string numbers = Numbers(name);
        const auto num_steps = std::count(numbers.begin(), numbers.end(), '\n');
        const ProgramResult next = Run({"--load", File(name + "_ck"), "--num_iteration", std::to_string(num_steps + 1),
                                        "--metrics_file", File(name)});
        ASSERT_EQ(next.exit_code, 0) << next.err;
        const std::string more = Numbers(name);
        EXPECT_EQ(std::count(more.begin(), more.end(), '\n'), num_steps + 1);
        EXPECT_EQ(more.substr(0, numbers.size()), numbers);
    }
}

TEST_F(Resume, AFolderThatCannotBeWrittenStopsOrDoesNotStopTheRun) {
    test::WriteTextFile(File("file"), "not a folder");
    const ProgramResult result = Run(Join(Start(), {"--num_iteration", "1", "--save", File("file")}));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.err.find(File("file")), std::string::npos) << result.err;
    EXPECT_EQ(ReadTextFile(File("file")), "not a folder");
}

TEST_F(Resume, ANonFiniteLossNamesTheStepTheRankTheParameterAndTheLastGoodCheckpoint) {
    ASSERT_EQ(Run(Join(Start(), {"--num_iteration", "1", "--save", File("ck")})).exit_code, 0);
    const Words words = {"--load",      File("ck"), "--num_iteration",     "30", "--learning_rate", "1e30",
                         "--grad_clip", "0",        "--pipeline_parallel", "2",  "--save",          File("ck"),
                         "--optimizer", "adamw"};
    const ProgramResult result = Run(words);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("not finite; rank "), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("the last good checkpoint is " + File("ck") + "/step_00000001"), std::string::npos)
        << result.err;
    EXPECT_TRUE(std::filesystem::exists(File("ck") + "/step_00000001/manifest.json"));
}

}  // namespace
}  // namespace infini_train
