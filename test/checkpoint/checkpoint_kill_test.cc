#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/checkpoint_writer.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "test/checkpoint/toy_training.h"
#include "test/support/run_program.h"

// A run that saves without end is killed at random times.

namespace infini_train::checkpoint::test {
namespace {

constexpr int kKills = 150;
constexpr int kMaxDelayUs = 60000;  // a save takes about 10 ms, on a busy machine many times that

/// Writes each step twice, so that the second takes the place of the first, and tells of each when it is there.
[[noreturn]] void SaveForEver(const std::string& run, int64_t first_moment, int told) {
    comm::RunRanks({.shape = {.data = 2}}, [&](const comm::Mesh& mesh) {
        const ToyTraining training(mesh);
        const auto writer = training.MakeWriter(run, 2);
        for (int64_t moment = first_moment;; ++moment) {
            const CheckpointWriter::Result result = training.Save(*writer, moment / 2, moment);
            if (!result.error.empty() || (mesh.rank == 0 && write(told, &moment, sizeof(moment)) != sizeof(moment))) {
                _exit(1);
            }
        }
    });
    _exit(1);
}

/// The next moment that the child tells of, or `before` when it ends first.
int64_t NextTold(int told, int64_t before) {
    int64_t moment = 0;
    return read(told, &moment, sizeof(moment)) == sizeof(moment) ? moment : before;
}

/// The last moment that the child told of, or `before`.
int64_t LastTold(int told, int64_t before) {
    for (int64_t next = NextTold(told, before); next != before; next = NextTold(told, before)) {
        before = next;
    }
    return before;
}

/// Has the run save from a moment on, kills it some time after its start or after its first save, and returns the last
/// moment whose checkpoint it knew to be there.
int64_t SaveAndKill(const std::string& run, int64_t first_moment, int delay_us, bool after_first_save) {
    std::array<int, 2> ends = {};
    EXPECT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        SaveForEver(run, first_moment, ends[1]);
    }
    close(ends[1]);
    const int64_t first_told = after_first_save ? NextTold(ends[0], first_moment - 1) : first_moment - 1;
    usleep(static_cast<useconds_t>(delay_us));
    kill(child, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the run ended by itself, with " << WEXITSTATUS(status);
    const int64_t last = LastTold(ends[0], first_told);
    close(ends[0]);
    return last;
}

/// That the newest checkpoint is whole. Returns the moment it is of.
int64_t LoadNewest(const std::string& run) {
    const std::string folder = FindCheckpoint(run);
    VerifyChecksums(folder, 0, 1);
    const TrainingState state = ReadTrainingState(folder);
    const int64_t moment = state.position.row;
    EXPECT_EQ(state.step, moment / 2) << folder;
    EXPECT_EQ(state.optimizer_step, moment) << folder;
    EXPECT_EQ(DifferenceFrom(moment, folder), "") << folder;
    return moment;
}

TEST(CheckpointKill, TheLastCompleteCheckpointOfAKilledRunIsThere) {
    const infini_train::test::TemporaryFolder folder;
    const std::string run = folder.File("run");
    std::mt19937 random(1);
    int64_t newest = -1;
    int num_partial = 0;
    for (int i = 0; i < kKills; ++i) {
        const int64_t last_told = SaveAndKill(run, newest + 1, static_cast<int>(random() % kMaxDelayUs), i % 3 != 0);
        if (last_told < 0) {
            continue;  // it was killed before its first checkpoint
        }
        newest = LoadNewest(run);
        // One more may have got its name, and the run no time to tell.
        ASSERT_TRUE(newest == last_told || newest == last_told + 1) << newest << " after " << last_told;
        const std::filesystem::directory_iterator names(run);
        num_partial += std::any_of(begin(names), end(names),
                                   [](const auto& entry) { return entry.path().string().ends_with(".partial"); })
                           ? 1
                           : 0;
    }
    RecordProperty("checkpoints", std::to_string(newest + 1));
    RecordProperty("kills_that_left_a_partial_one", num_partial);
    EXPECT_GT(newest, kKills / 2) << "the kills come too early to show anything";
    EXPECT_GT(num_partial, kKills / 5) << "the kills come between the saves";
}

}  // namespace
}  // namespace infini_train::checkpoint::test
