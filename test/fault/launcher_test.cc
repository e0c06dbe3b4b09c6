// What becomes of the processes when scripts/run_local.sh, or one of them, is killed.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "test/fault/fault_run.h"
#include "test/support/background_program.h"
#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
}

/// A training without an end, by four processes.
class Launcher : public testing::Test {
 protected:
    Launcher() : job_id_(StrCat("launcher-", getpid())) {
        WriteTextFile(folder_.File("tokens.txt"), std::string(2000, 'a'));
        setenv("INFINI_JOB_ID", job_id_.c_str(), 1);
        launcher_ = std::make_unique<BackgroundProgram>(
            std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh",
            Words{"-n", "4", "--", std::string(INFINI_BINARY_DIR) + "/gpt2", "--device", "cpu", "--model", "tiny",
                  "--input_bin", folder_.File("tokens.txt"), "--num_iteration", "1000000", "--pipeline_parallel", "4",
                  "--timeout_s", "6", "--metrics_file", folder_.File("metrics.jsonl")},
            folder_.File("out"));
        launcher_->WaitForFile(folder_.File("metrics.jsonl"), 500);
        unsetenv("INFINI_JOB_ID");
    }
    ~Launcher() override {
        launcher_.reset();
        for (const pid_t pid : ProcessesOfJob(job_id_)) {
            kill(pid, SIGKILL);
        }
    }

    std::string Text() const { return ReadTextFile(folder_.File("out")); }

    /// The processes of the run, by rank.
    std::vector<pid_t> Ranks() const {
        std::vector<pid_t> ranks(4, -1);
        for (const pid_t pid : ProcessesOfJob(job_id_)) {
            const std::string environment = ReadTextFile(StrCat("/proc/", pid, "/environ"));
            const std::string program = ReadTextFile(StrCat("/proc/", pid, "/comm"));
            const size_t rank = environment.find(std::string(1, '\0') + "RANK=");
            if (program == "gpt2\n" && rank != std::string::npos) {
                ranks.at(static_cast<size_t>(environment[rank + 6] - '0')) = pid;
            }
        }
        return ranks;
    }

    void ExpectNobodyWithin(double limit_s) const {
        const auto begin = Clock::now();
        while (!ProcessesOfJob(job_id_).empty() && SecondsSince(begin) < limit_s) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        EXPECT_EQ(ProcessesOfJob(job_id_).size(), 0u) << Text();
    }

    TemporaryFolder folder_;
    std::string job_id_;
    std::unique_ptr<BackgroundProgram> launcher_;
};

// bugs.csv O85
TEST_F(Launcher, LeavesNobodyWhenItIsKilled) {
    const std::vector<pid_t> ranks = Ranks();
    ASSERT_EQ(std::count(ranks.begin(), ranks.end(), -1), 0) << Text();
    launcher_->Signal(SIGKILL);
    EXPECT_EQ(launcher_->Wait(), 128 + SIGKILL);
    ExpectNobodyWithin(10.0);
}

TEST_F(Launcher, EndsTheRunAfterItsStepOnCtrlC) {
    launcher_->Signal(SIGINT);
    EXPECT_EQ(launcher_->Wait(), 128 + SIGINT);
    EXPECT_TRUE(Contains(Text(), "SIGINT: stops after step")) << Text();
    ExpectNobodyWithin(0.0);
}

// bugs.csv O85
TEST_F(Launcher, EndsTheRunAtOnceOnASecondCtrlC) {
    // One of them cannot stop after its step.
    kill(Ranks()[2], SIGSTOP);
    const auto begin = Clock::now();
    launcher_->Signal(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // two signals at once would be one
    launcher_->Signal(SIGINT);
    EXPECT_EQ(launcher_->Wait(), 128 + SIGINT);
    EXPECT_LT(SecondsSince(begin), 5.0);  // after which it kills without a second one
    ExpectNobodyWithin(0.0);
}

// bugs.csv O85
TEST_F(Launcher, EndsTheOthersWhenARankIsKilled) {
    const auto begin = Clock::now();
    kill(Ranks()[3], SIGKILL);
    EXPECT_EQ(launcher_->Wait(), 128 + SIGKILL);
    EXPECT_LT(SecondsSince(begin), 10.0);
    EXPECT_TRUE(Contains(Text(), "\nprocess 3 (")) << Text();  // of process 0, whose lines have no number in front
    ExpectNobodyWithin(0.0);
}

TEST_F(Launcher, KillsARankThatIsStopped) {
    const auto begin = Clock::now();
    kill(Ranks()[1], SIGSTOP);
    EXPECT_EQ(launcher_->Wait(), 1);
    EXPECT_LT(SecondsSince(begin), 6.0 + 5.0);
    EXPECT_TRUE(Contains(Text(), "\nprocess 1 (")) << Text();
    ExpectNobodyWithin(0.0);
}

}  // namespace
}  // namespace infini_train::test
