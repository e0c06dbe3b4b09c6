// A loss that is not finite: what is said, what is saved, and how a run goes on.

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

constexpr size_t kHeaderBytes = 1024;
constexpr int kOddStep = 3;  // the one of an epoch whose rows have the odd letter

class NonFinite : public TrainingRun {
 protected:
    static void SetInf(std::string& file, size_t byte) {
        const float inf = std::numeric_limits<float>::infinity();
        std::memcpy(file.data() + byte, &inf, sizeof(inf));
    }
    static int Word(const std::string& file, size_t index) {
        int word = 0;
        std::memcpy(&word, file.data() + 4 * index, sizeof(word));
        return word;
    }
    static std::string Weights(const std::string& name) {
        return ReadTextFile(std::string(INFINI_SOURCE_DIR) + "/test/reference/" + name);
    }
    /// A GPT-2 whose very last weight is not finite: no step is.
    Words Gpt2() const {
        std::string file = Weights("gpt2_tiny.bin");
        SetInf(file, file.size() - sizeof(float));
        WriteTextFile(File("gpt2.bin"), file);
        return Join(WithoutModel(), {"--llmc_filepath", File("gpt2.bin")});
    }
    /// A LLaMA whose embedding of one letter is not finite: a step is where its rows do not have the letter. A decay of
    /// 0 times such a weight makes NaN of it.
    Words Llama3() const {
        std::string file = Weights("llama_tiny.bin");
        const auto num_channels = static_cast<size_t>(Word(file, 7));
        SetInf(file, kHeaderBytes + sizeof(float) * num_channels * static_cast<size_t>('Q'));
        WriteTextFile(File("llama3.bin"), file);
        // Rows 16 to 24 are the third step: of shard b, whose first is row 11.
        std::string text = ReadTextFile(File("shard_b.txt"));
        text[16 * 6 + 3] = 'Q';
        WriteTextFile(File("shard_b.txt"), text);
        return Join(WithoutModel(), {"--llmc_filepath", File("llama3.bin")});
    }
    Words WithoutModel() const {
        const Words start = Start();
        return Words(start.begin() + 2, start.end());
    }
};

TEST_F(NonFinite, StopsAndNamesTheStepTheRankTheParameterAndTheLastGoodCheckpoint) {
    const Words words = Join(Join(Join(Llama3(), Files("run")), Steps(9)), {"--save_every", "1"});
    for (const std::string num_stages : {"1", "2"}) {
        const ProgramResult result = RunProgram("llama3", Join(words, {"--pipeline_parallel", num_stages}));
        EXPECT_EQ(result.exit_code, 1) << result.out;
        for (const std::string& part :
             Words{"step 3: the loss or the gradient norm is not finite", "rank 0: parameter wte.weight holds nan",
                   "; the last good checkpoint is " + StepFolder("run", kOddStep - 1), "loss nan"}) {
            EXPECT_TRUE(Contains(result.err, part)) << part << " is not in: " << result.err;
        }
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        EXPECT_EQ(result.err.rfind(num_stages == "1" ? "step 3: " : "[rank 0] step 3: ", 0), 0u) << result.err;
        EXPECT_EQ(NamesIn(File("run")), (Words{"step_00000001", "step_00000002"}));
        EXPECT_TRUE(Contains(Numbers("run"), "3 loss null")) << Numbers("run");
    }
    // The checkpoint that it names is good.
    Train("llama3", Join({"--load", StepFolder("run", 1)}, Steps(2)));
}

TEST_F(NonFinite, NamesTheRankThatHasTheParameter) {
    const Words start = Join(Gpt2(), Steps(2));
    const ProgramResult result = RunProgram("gpt2", Join(start, {"--pipeline_parallel", "2", "--save", File("run")}));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(Contains(result.err, "step 1: ")) << result.err;
    EXPECT_EQ(result.err.rfind("[rank 1] ", 0), 0u) << result.err;
    EXPECT_TRUE(Contains(result.err, "rank 1: parameter ln_f.bias holds inf")) << result.err;
    EXPECT_TRUE(Contains(result.err, "there is no checkpoint of this run")) << result.err;
    EXPECT_EQ(NamesIn(File("run")), Words{});
}

TEST_F(NonFinite, LeavesTheCheckpointsOfEarlierRunsAlone) {
    Train("gpt2", Join(Join(Start(), {"--save", File("run"), "--save_every", "1"}), Steps(2)));
    std::vector<std::string> before;
    for (const std::string& name : NamesIn(File("run"))) {
        before.push_back(ReadTextFile(File("run") + "/" + name + "/manifest.json"));
    }
    // At such a learning rate the first step is good, and its weights are good for nothing.
    const ProgramResult result =
        RunProgram("gpt2", Join({"--load", File("run"), "--save", File("run"), "--learning_rate", "1e30"}, Steps(9)));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(Contains(result.err, "; the last good checkpoint is " + StepFolder("run", 2))) << result.err;
    EXPECT_EQ(NamesIn(File("run")), (Words{"step_00000001", "step_00000002"}));
    for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(ReadTextFile(StepFolder("run", static_cast<int>(i) + 1) + "/manifest.json"), before[i]);
    }
}

TEST_F(NonFinite, SkipsTheStepWithoutATrace) {
    const Words words = Join(Join(Join(Llama3(), Files("run")), {"--save_every", "1"}), {"--on_nonfinite", "skip"});
    const ProgramResult result = Train("llama3", Join(words, Steps(5)));
    EXPECT_TRUE(Contains(result.out, "note: step 3 changes nothing: loss nan, norm nan\n")) << result.out;
    for (const int step : {4, 5}) {
        EXPECT_FALSE(Contains(Numbers("run"), std::to_string(step) + " loss null")) << Numbers("run");
    }
    // Nothing but the position in the data has changed.
    EXPECT_EQ(DifferentFiles(StepFolder("run", 2), StepFolder("run", 3)), "manifest.json trainer_state.json ");
    EXPECT_NE(DifferentFiles(StepFolder("run", 3), StepFolder("run", 4)), "manifest.json trainer_state.json ");
    // A run that goes on skips, too: the flag is in the checkpoint.
    const std::string whole = Numbers("run");
    Train("llama3", Join(Join({"--load", StepFolder("run", 2)}, Files("run")), Steps(5)));
    EXPECT_EQ(Numbers("run"), whole);
}

TEST_F(NonFinite, StopsWhenNoStepIsGood) {
    const ProgramResult result = RunProgram("gpt2", Join(Join(Gpt2(), {"--on_nonfinite", "skip"}), Steps(30)));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(Contains(result.out, "note: step 9 changes nothing")) << result.out;
    EXPECT_TRUE(Contains(result.err, "step 10: ")) << result.err;
    EXPECT_TRUE(Contains(result.err, "for the 10th time in a row")) << result.err;
}

}  // namespace
}  // namespace infini_train::test
