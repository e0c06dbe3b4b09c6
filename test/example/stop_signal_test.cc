// Signals that stop a training: after the step, with a checkpoint, or at once.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "example/common/stop_signal.h"
#include "test/support/background_program.h"
#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

constexpr int kManySteps = 100000;
const std::string kProgram = std::string(INFINI_BINARY_DIR) + "/gpt2";

class StopSignalRun : public TrainingRun {
 protected:
    /// Runs until there are metrics of a step, and a signal then. Returns what it printed.
    std::string StopOne(int signal, const Words& words, const std::string& metrics_path) const {
        BackgroundProgram run(kProgram, words, File("out"));
        run.WaitForFile(metrics_path, 1);
        run.Signal(signal);
        EXPECT_EQ(run.Wait(), 0) << ReadTextFile(File("out"));
        return ReadTextFile(File("out"));
    }
    static int NumLines(const std::string& text) {
        return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    }
};

TEST_F(StopSignalRun, SavesAfterTheStepAndTheRunGoesOnFromThere) {
    const std::vector<std::tuple<int, std::string, Words>> cases = {
        {SIGTERM, "SIGTERM", {}},
        {SIGINT, "SIGINT", {"--pipeline_parallel", "2"}},
        {SIGUSR1, "SIGUSR1", {"--nthread_per_process", "2"}},
    };
    for (const auto& [signal, name, more] : cases) {
        const Words words = Join(Join(Rich(), Files(name)), more);
        const std::string out = StopOne(signal, Join(words, Steps(kManySteps)), File(name + ".jsonl"));
        const std::string numbers = Numbers(name);
        const int num_steps = NumLines(numbers);
        EXPECT_TRUE(Contains(out, "note: " + name + ": stops after step " + std::to_string(num_steps) + "\n")) << out;
        EXPECT_TRUE(Contains(out, "saved " + StepFolder(name, num_steps) + "\n")) << out;
        EXPECT_TRUE(Contains(out, "predicted")) << out;
        // Two steps more are those of a run that was not stopped.
        Train("gpt2", Join(Join(Join({"--load", File(name)}, Files(name)), more), Steps(num_steps + 2)));
        Train("gpt2", Join(Join(Join(Rich(), {"--metrics_file", File("whole.jsonl")}), more), Steps(num_steps + 2)));
        EXPECT_EQ(Numbers(name), Numbers("whole")) << name;
    }
}

TEST_F(StopSignalRun, EndsWellWithoutAFolderForCheckpoints) {
    const Words words = Join(Join(Start(), {"--metrics_file", File("m.jsonl"), "--prompt", "abc"}), Steps(kManySteps));
    const std::string out = StopOne(SIGTERM, words, File("m.jsonl"));
    EXPECT_TRUE(Contains(out, "; nothing is saved without --save\n")) << out;
    EXPECT_FALSE(Contains(out, "text:")) << out;
    EXPECT_EQ(NamesIn(File("")), (Words{"m.jsonl", "out", "shard_a.txt", "shard_b.txt", "shard_c.txt"}));
}

TEST(StopSignals, KeepSignalsFromTheThreadsThatCompute) {
    // A handler on the stack of such a thread destroys what lies on the heap, in about one of eight runs.
    const auto is_blocked = [](int signal) {
        sigset_t mask;
        EXPECT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
        return sigismember(&mask, signal) == 1;
    };
    {
        const StopSignals signals;
        EXPECT_EQ(StopSignal(), 0);
        for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
            bool later_blocks = false;
            std::thread([&] { later_blocks = is_blocked(signal); }).join();
            EXPECT_TRUE(is_blocked(signal) && later_blocks) << SignalName(signal);
        }
        kill(getpid(), SIGINT);
        while (StopSignal() == 0) {
            std::this_thread::yield();
        }
        EXPECT_EQ(StopSignal(), SIGINT);
    }
    EXPECT_FALSE(is_blocked(SIGTERM));
    const StopSignals again;
    EXPECT_EQ(StopSignal(), 0);
}

TEST_F(StopSignalRun, EndsAtOnceWhenItComesAgain) {
    // A step of some seconds, in which it cannot end otherwise.
    WriteTextFile(File("long.txt"), std::string(256 * 500 + 1, 'a'));
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
        BackgroundProgram run(kProgram,
                              {"--model", "tiny", "--input_bin", File("long.txt"), "--batch_size", "1",
                               "--sequence_length", "256", "--total_batch_size", "128000", "--pipeline_parallel", "2",
                               "--metrics_file", File("m.jsonl"), "--save", File("run")},
                              File("out"));
        run.WaitForFile(File("m.jsonl"), 0);  // there before the first step, and written anew
        EXPECT_EQ(run.SignalUntilItEnds(signal), 128 + signal);
        EXPECT_EQ(ReadTextFile(File("m.jsonl")), "");
        EXPECT_EQ(NamesIn(File("run")), Words{});
        std::filesystem::remove(File("m.jsonl"));
    }
}

TEST_F(StopSignalRun, EndsAProgramThatDoesNotTrainAsUsual) {
    BackgroundProgram run(kProgram,
                          {"--model", "tiny", "--num_iteration", "0", "--prompt", "abc", "--text_length", "100000"},
                          File("out"));
    run.WaitForFile(File("out"), 0);
    run.Signal(SIGTERM);
    EXPECT_EQ(run.Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace infini_train::test
