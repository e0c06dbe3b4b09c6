// What --load, --save_every and --keep make of the folder of a run, good or broken.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

class ResumeLoad : public TrainingRun {
 protected:
    /// Five steps, and a checkpoint of each; the metrics in run.jsonl.
    void TrainRun() const { Train("gpt2", Join(Join(Join(Rich(), Steps(5)), Files("run")), {"--save_every", "1"})); }
    void ExpectRefusal(const Words& words, const Words& parts, const std::string& program = "gpt2") const {
        const ProgramResult result = RunProgram(program, words);
        EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        for (const std::string& part : parts) {
            EXPECT_TRUE(Contains(result.err, part)) << part << " is not in: " << result.err;
        }
    }
    /// Changes the byte in the middle of a file.
    static void Flip(const std::string& path) {
        std::string bytes = ReadTextFile(path);
        bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
        WriteTextFile(path, bytes);
    }
    static void Shorten(const std::string& path) {
        std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
    }
};

TEST_F(ResumeLoad, SavesEveryFewStepsAndAfterTheLast) {
    const ProgramResult result = Train("gpt2", Join(Join(Join(Rich(), Steps(5)), Files("run")), {"--save_every", "2"}));
    EXPECT_EQ(NamesIn(File("run")), (Words{"step_00000002", "step_00000004", "step_00000005"}));
    for (const int step : {2, 4, 5}) {
        EXPECT_TRUE(Contains(result.out, "saved " + StepFolder("run", step) + "\n")) << result.out;
    }
}

TEST_F(ResumeLoad, KeepsTheNewest) {
    const Words keep = {"--save_every", "1", "--keep", "2"};
    Train("gpt2", Join(Join(Join(Rich(), Steps(3)), Files("run")), keep));
    EXPECT_EQ(NamesIn(File("run")), (Words{"step_00000002", "step_00000003"}));
    Train("gpt2", Join(Join(Join({"--load", "latest"}, Steps(6)), Files("run")), keep));
    EXPECT_EQ(NamesIn(File("run")), (Words{"step_00000005", "step_00000006"}));
}

TEST_F(ResumeLoad, LatestBeginsAnewUntilThereIsACheckpoint) {
    const Words words = Join(Join(Rich(), Files("run")), {"--load", "latest"});
    std::filesystem::create_directories(StepFolder("run", 7) + ".partial");
    const ProgramResult fresh = Train("gpt2", Join(words, Steps(2)));
    EXPECT_TRUE(Contains(fresh.out, "note: there is no checkpoint in " + File("run") + " yet\n")) << fresh.out;
    EXPECT_EQ(NamesIn(File("run")), (Words{"step_00000002"}));
    const ProgramResult next = Train("gpt2", Join(words, Steps(4)));  // whatever --model says
    EXPECT_TRUE(Contains(next.out, "goes on after step 2 of " + StepFolder("run", 2) + "\n")) << next.out;
    Train("gpt2", Join(Join(Rich(), Files("whole")), Steps(4)));
    EXPECT_EQ(Numbers("run"), Numbers("whole"));
    ExpectRefusal({"--load", "latest", "--input_bin", File("shard_a.txt")}, {"--load", "needs --save"});
}

TEST_F(ResumeLoad, TakesTheFolderOfARunOrOfAStep) {
    TrainRun();
    for (const auto& [folder, step] : {std::pair{File("run"), 5},
                                       {File("run") + "/", 5},
                                       {StepFolder("run", 3), 3},
                                       {StepFolder("run", 3) + "/", 3}}) {
        const ProgramResult result = Train("gpt2", Join({"--load", folder}, Steps(6)));
        EXPECT_TRUE(Contains(result.out,
                             "goes on after step " + std::to_string(step) + " of " + StepFolder("run", step) + "\n"))
            << result.out;
    }
    ExpectRefusal({"--load", File("none")}, {File("none"), "is not a folder"});
    ExpectRefusal({"--load", File("run"), "--model", "tiny"}, {"--model", "--load"});
    std::filesystem::create_directory(File("empty"));
    ExpectRefusal({"--load", File("empty")}, {File("empty")});
}

TEST_F(ResumeLoad, RefusesWhatIsBrokenAndTakesTheNewestThatIsWhole) {
    TrainRun();
    Shorten(StepFolder("run", 5) + "/optimizer-00003-of-00010.safetensors");
    std::filesystem::remove(StepFolder("run", 4) + "/manifest.json");
    const ProgramResult result = Train("gpt2", Join({"--load", File("run")}, Steps(6)));
    EXPECT_TRUE(Contains(result.out, "goes on after step 3 of")) << result.out;
    ExpectRefusal({"--load", StepFolder("run", 5)}, {"optimizer-00003-of-00010.safetensors"});
    ExpectRefusal({"--load", StepFolder("run", 4)}, {"manifest.json"});
    for (const char* name : {"model-00004-of-00010.safetensors", "optimizer-00010-of-00010.safetensors",
                             "trainer_state.json", "config.json"}) {
        const std::string path = StepFolder("run", 2) + "/" + name;
        const std::string bytes = ReadTextFile(path);
        Flip(path);
        ExpectRefusal(Join({"--load", StepFolder("run", 2)}, Steps(6)), {name});
        WriteTextFile(path, bytes);
    }
    for (const int step : {1, 2, 3}) {
        Shorten(StepFolder("run", step) + "/config.json");
    }
    // Not a fresh start: what is there would be lost.
    ExpectRefusal(Join({"--load", "latest", "--save", File("run"), "--model", "tiny"}, Steps(6)),
                  {"no complete checkpoint among 5"});
}

TEST_F(ResumeLoad, RefusesAPartialCheckpoint) {
    TrainRun();
    std::filesystem::rename(StepFolder("run", 5), File("only") + ".partial");
    ExpectRefusal({"--load", File("only") + ".partial"}, {"never completed"});
    std::filesystem::create_directory(File("only"));
    std::filesystem::rename(File("only") + ".partial", StepFolder("only", 5) + ".partial");
    ExpectRefusal({"--load", File("only")}, {File("only")});
}

TEST_F(ResumeLoad, TakesSettingsFromTheCheckpointAndNotesWhatDiffers) {
    TrainRun();
    const ProgramResult same = Train("gpt2", Join({"--load", File("run")}, Steps(5)));
    EXPECT_FALSE(Contains(same.out, "was made with")) << same.out;
    EXPECT_FALSE(Contains(same.out, "predicted")) << same.out;
    EXPECT_TRUE(Contains(same.out, "note: the checkpoint has 5 steps already; --num_iteration 5 trains no more\n"))
        << same.out;
    const ProgramResult other =
        Train("gpt2", Join({"--load", File("run"), "--weight_decay", "0.5", "--shuffle=false"}, Steps(6)));
    for (const std::string note :
         {"--num_iteration 6, the checkpoint was made with 5", "--weight_decay 0.5, the checkpoint was made with 0.1",
          "--shuffle false, the checkpoint was made with true"}) {
        EXPECT_TRUE(Contains(other.out, "note: " + note + "\n")) << note << " is not in: " << other.out;
    }
    EXPECT_FALSE(Contains(other.out, "--dropout")) << other.out;
}

// --final_lr_fraction is 1 unless it is given: with that no schedule decays.
TEST_F(ResumeLoad, NotesAScheduleThatChangesNothing) {
    const auto notes = [this](const Words& words) {
        const std::string out = Train("gpt2", words).out;
        return Contains(out, "note: --lr_schedule cosine changes nothing with --final_lr_fraction 1: ");
    };
    const Words fresh = Join(Start(), Steps(1));
    const Words cosine = {"--lr_schedule", "cosine"};
    EXPECT_TRUE(notes(Join(fresh, cosine)));
    EXPECT_FALSE(notes(fresh));
    EXPECT_FALSE(notes(Join(fresh, {"--lr_schedule", "constant"})));
    EXPECT_FALSE(notes(Join(Join(fresh, cosine), {"--final_lr_fraction", "0.1"})));
    EXPECT_FALSE(notes(Join(Join(fresh, cosine), {"--final_lr_fraction", "1"})));
    Train("gpt2", Join(fresh, {"--save", File("flat")}));
    Train("gpt2", Join(Join(fresh, {"--save", File("decays")}), {"--final_lr_fraction", "0.1"}));
    EXPECT_FALSE(notes(Join({"--load", File("flat")}, Steps(2))));
    EXPECT_TRUE(notes(Join(Join({"--load", File("flat")}, Steps(2)), cosine)));
    EXPECT_FALSE(notes(Join(Join({"--load", File("decays")}, Steps(2)), cosine)));
}

TEST_F(ResumeLoad, RefusesAnotherModelOrOptimizer) {
    TrainRun();
    ExpectRefusal({"--load", File("run")}, {"config.json", "gpt2", "llama"}, "llama3");
    ExpectRefusal(Join({"--load", File("run"), "--optimizer", "sgd"}, Steps(6)), {"another optimizer"});
}

TEST_F(ResumeLoad, GoesBackToAnEarlierStepWithoutDoubledSteps) {
    TrainRun();
    const std::string before = Numbers("run");
    const ProgramResult result = Train("gpt2", Join(Join({"--load", StepFolder("run", 2)}, Files("run")), Steps(4)));
    EXPECT_TRUE(Contains(result.out, "has a checkpoint of a later step already")) << result.out;
    EXPECT_EQ(Numbers("run"), before.substr(0, before.find("5 loss")));
    const ProgramResult fresh = Train("gpt2", Join(Join(Rich(), {"--save", File("run")}), Steps(1)));
    EXPECT_TRUE(Contains(fresh.out, "has a checkpoint of a later step already")) << fresh.out;
}

}  // namespace
}  // namespace infini_train::test
