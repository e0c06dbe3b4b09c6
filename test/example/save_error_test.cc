// Checkpoints that cannot be written: a full disk, as a limit on the size of files stands in for one.

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

class SaveError : public TrainingRun {
 protected:
    /// A run that cannot write files of more than 1.2 MB, those of the moments: a write beyond it fails.
    ProgramResult RunOnAFullDisk(const Words& words) const {
        const std::string script = "trap '' XFSZ; ulimit -f 2400; exec \"$@\"";  // blocks of 512 bytes
        return RunProgram("/bin/sh", Join({"-c", script, "sh", std::string(INFINI_BINARY_DIR) + "/gpt2"}, words));
    }
    Words Restart(int num_steps) const {
        return Join(Join(Join({"--load", "latest"}, Files("run")), Steps(num_steps)), {"--save_every", "1"});
    }
};

TEST_F(SaveError, IsNotedAndTheRunGoesOnButDoesNotEndWell) {
    Train("gpt2", Join(Join(Rich(), Files("run")), Steps(2)));
    const std::string good = ReadTextFile(StepFolder("run", 2) + "/manifest.json");
    for (const std::string num_stages : {"1", "2"}) {
        const ProgramResult result = RunOnAFullDisk(Join(Restart(5), {"--pipeline_parallel", num_stages}));
        EXPECT_EQ(result.exit_code, 1) << result.out;
        EXPECT_TRUE(Contains(result.out, "step    5/5")) << result.out;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        EXPECT_TRUE(Contains(result.err, "--save " + File("run") + ": ")) << result.err;
        size_t num_notes = 0;
        for (size_t at = result.out.find("note: not saved: "); at != std::string::npos;
             at = result.out.find("note: not saved: ", at + 1)) {
            ++num_notes;
        }
        EXPECT_EQ(num_notes, 3u) << result.out;
        EXPECT_TRUE(Contains(result.out, "File too large; the last checkpoint is " + StepFolder("run", 2) + "\n"))
            << result.out;
        EXPECT_EQ(NamesIn(File("run")), Words{"step_00000002"});
        EXPECT_EQ(ReadTextFile(StepFolder("run", 2) + "/manifest.json"), good);
    }
    // With room again it goes on from there, and the numbers are those of a run that always had it.
    Train("gpt2", Restart(5));
    Train("gpt2", Join(Join(Rich(), Files("whole")), Steps(5)));
    EXPECT_EQ(Numbers("run"), Numbers("whole"));
}

TEST_F(SaveError, StopsTheRunWhereThatIsWanted) {
    Train("gpt2", Join(Join(Rich(), Files("run")), Steps(2)));
    for (const std::string num_stages : {"1", "3"}) {
        const ProgramResult result =
            RunOnAFullDisk(Join(Restart(100000), {"--on_save_error", "stop", "--pipeline_parallel", num_stages}));
        EXPECT_EQ(result.exit_code, 1) << result.out;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        EXPECT_TRUE(Contains(result.err, "--save " + File("run"))) << result.err;
        EXPECT_TRUE(Contains(result.err, "; the last checkpoint is " + StepFolder("run", 2))) << result.err;
        EXPECT_EQ(NamesIn(File("run")), Words{"step_00000002"});
    }
}

TEST_F(SaveError, RefusesAFolderThatCannotBeBeforeItTrains) {
    WriteTextFile(File("file"), "no folder");
    for (const std::string& folder : {File("file"), File("file") + "/run", std::string("/proc/run")}) {
        const ProgramResult result = RunProgram("gpt2", Join(Join(Start(), {"--save", folder}), Steps(1)));
        EXPECT_EQ(result.exit_code, 2) << result.out;
        EXPECT_TRUE(Contains(result.err, folder + ": cannot make the folder for checkpoints: ")) << result.err;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        EXPECT_FALSE(Contains(result.out, "step    1")) << result.out;
    }
    EXPECT_EQ(ReadTextFile(File("file")), "no folder");
}

}  // namespace
}  // namespace infini_train::test
