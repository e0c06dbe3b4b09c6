// Runs that end in mid-air and begin again with --load latest.

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "gtest/gtest.h"

#include "test/support/background_program.h"
#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

const std::string kProgram = std::string(INFINI_BINARY_DIR) + "/gpt2";

class ResumeKill : public TrainingRun {
 protected:
    Words Endless(const std::string& name) const {
        return Join(Join(Join(Rich(), Files(name)), Steps(20)),
                    {"--save_every", "1", "--keep", "3", "--load", "latest"});
    }
    void ExpectTheEndOfAWholeRun(const std::string& name) const {
        Train("gpt2", Join(Join(Rich(), Files("whole")), Steps(20)));
        Train("gpt2", Endless(name));
        EXPECT_EQ(Numbers(name), Numbers("whole"));
        EXPECT_EQ(DifferentFiles(StepFolder("whole", 20), StepFolder(name, 20)), "");
        EXPECT_EQ(NamesIn(File(name)).size(), 3u);
    }
};

TEST_F(ResumeKill, EndsAsARunThatWasNotKilled) {
    // So many bytes of metrics are three or four steps: a run that was killed may have lost one of them.
    uintmax_t num_bytes = 1;
    for (int i = 0; i < 4; ++i, num_bytes += 700) {
        BackgroundProgram run(kProgram, Endless("run"), File("out"));
        run.WaitForFile(File("run.jsonl"), num_bytes);
        run.Signal(SIGKILL);
        EXPECT_EQ(run.Wait(), 128 + SIGKILL) << ReadTextFile(File("out"));
    }
    ExpectTheEndOfAWholeRun("run");
}

TEST_F(ResumeKill, EndsAsARunThatWasNotKilledWhileItSavedOnTwoRanks) {
    for (int delay_ms = 130; delay_ms < 500; delay_ms += 60) {
        BackgroundProgram run(kProgram, Join(Endless("run"), {"--pipeline_parallel", "2"}), File("out"));
        std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
        run.Signal(SIGKILL);
        run.Wait();
    }
    ExpectTheEndOfAWholeRun("run");
}

TEST_F(ResumeKill, LeavesTheFolderToOneRunAtATime) {
    const Words words = Join(Join(Start(), Files("run")), Steps(100000));
    BackgroundProgram run(kProgram, words, File("out"));
    run.WaitForFile(File("run.jsonl"), 1);
    const ProgramResult second = RunProgram("gpt2", Join(Join(Start(), {"--save", File("run")}), Steps(1)));
    EXPECT_EQ(second.exit_code, 2);
    EXPECT_TRUE(Contains(second.err, "another run saves its checkpoints there")) << second.err;
}

}  // namespace
}  // namespace infini_train::test
