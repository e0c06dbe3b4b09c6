#include "infini_train/include/checkpoint/checkpoint_writer.h"

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/optimizer/sgd.h"
#include "test/checkpoint/llmc_files.h"
#include "test/checkpoint/toy_training.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReadTextFile;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;
using Progress = CheckpointWriter::Progress;
using Names = std::set<std::string>;

Names NamesIn(const std::string& folder) {
    Names names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        names.insert(entry.path().filename().string());
    }
    return names;
}

std::map<std::string, std::string> FilesIn(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const std::string& name : NamesIn(folder)) {
        files[name] = ReadTextFile(folder + "/" + name);
    }
    return files;
}

class CheckpointWriterTest : public testing::Test {
 protected:
    TemporaryFolder folder_;
    std::string run_ = folder_.File("some/run");
};

TEST_F(CheckpointWriterTest, WritesAFileForEachUnitAndTheManifest) {
    Alone([&](const ToyTraining& training) {
        const auto writer = training.MakeWriter(run_);
        const CheckpointWriter::Result result = training.Save(*writer, 30, 7);
        EXPECT_EQ(result.error, "");
        EXPECT_EQ(result.path, run_ + "/step_00000030");
    });
    const std::string folder = run_ + "/step_00000030";
    EXPECT_EQ(NamesIn(run_), Names{"step_00000030"});
    EXPECT_EQ(
        NamesIn(folder),
        (Names{"config.json", "manifest.json", "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
               "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors", "model.safetensors.index.json",
               "optimizer-00001-of-00004.safetensors", "optimizer-00002-of-00004.safetensors",
               "optimizer-00003-of-00004.safetensors", "optimizer-00004-of-00004.safetensors", "trainer_state.json"}));
    EXPECT_EQ(DifferenceFrom(7, folder), "");
    EXPECT_NE(DifferenceFrom(8, folder), "");
    EXPECT_EQ(OpenSafetensors(folder + "/model-00002-of-00004.safetensors").names(),
              (std::vector<std::string>{"hf.h.0.a0", "hf.h.0.a1", "hf.h.0.b"}));
    EXPECT_EQ(OpenSafetensors(folder + "/optimizer-00004-of-00004.safetensors").names(),
              (std::vector<std::string>{"m.ln_f", "v.ln_f"}));
    TrainingState wanted = ToyTraining::StateOf(30, 7);
    wanted.optimizer_step = 7;
    EXPECT_EQ(ReadTrainingState(folder), wanted);
}

TEST_F(CheckpointWriterTest, AnOptimizerWithoutMomentsHasNoFiles) {
    Alone([&](const ToyTraining& training) {
        ToyTraining plain = training;
        plain.optimizer = std::make_shared<optimizers::Sgd>(plain.chunks[0]->Parameters(), optimizers::Sgd::Options{});
        const auto writer = plain.MakeWriter(run_);
        EXPECT_EQ(plain.Save(*writer, 1, 1).error, "");
        LoadMoments(run_ + "/step_00000001", plain.chunks, *plain.optimizer);
    });
    EXPECT_EQ(NamesIn(run_ + "/step_00000001").size(), 8u);
}

TEST_F(CheckpointWriterTest, HoldsTheNumbersOfTheMomentItBeganAtWhateverTheTrainingDoesNext) {
    Alone([&](const ToyTraining& training) {
        std::promise<void> release;
        training.hf->before_convert = [go_on = release.get_future().share()] { go_on.wait(); };
        const auto writer = training.MakeWriter(run_);
        EXPECT_EQ(writer->progress(), Progress::kIdle);
        training.SetMoment(1);
        writer->Begin(ToyTraining::StateOf(1, 1));
        EXPECT_EQ(writer->progress(), Progress::kWriting);  // and this thread goes on
        training.SetMoment(2);
        release.set_value();
        writer->Wait();
        EXPECT_EQ(writer->progress(), Progress::kWritten);
        EXPECT_EQ(writer->Commit().error, "");
        EXPECT_EQ(writer->progress(), Progress::kIdle);
    });
    const std::string background = run_ + "/step_00000001";
    EXPECT_EQ(DifferenceFrom(1, background), "");
    EXPECT_EQ(ReadTrainingState(background).optimizer_step, 1);

    const std::string other_run = folder_.File("other");
    Alone([&](const ToyTraining& training) {
        const auto writer = training.MakeWriter(other_run);
        EXPECT_EQ(training.Save(*writer, 1, 1).error, "");  // nothing happens meanwhile
    });
    EXPECT_EQ(FilesIn(background), FilesIn(other_run + "/step_00000001"));
}

TEST_F(CheckpointWriterTest, KeepsTheNewestAndAlwaysTheOneJustWritten) {
    Alone([&](const ToyTraining& training) {
        auto writer = training.MakeWriter(run_, 2);
        const auto save = [&](int64_t step) { EXPECT_EQ(training.Save(*writer, step, step).error, ""); };
        save(2);
        save(10);
        save(30);
        writer.reset();  // waits for what is being removed
        EXPECT_EQ(NamesIn(run_), (Names{"step_00000010", "step_00000030"}));
        std::filesystem::remove(run_ + "/step_00000010/manifest.json");  // is none any more, and nobody's to remove
        writer = training.MakeWriter(run_, 2);
        save(5);
        writer.reset();
        EXPECT_EQ(NamesIn(run_), (Names{"step_00000005", "step_00000010", "step_00000030"}));
        writer = training.MakeWriter(run_, 1);
        save(4);
        writer.reset();
        EXPECT_EQ(NamesIn(run_), (Names{"step_00000004", "step_00000010"}));
        writer = training.MakeWriter(run_, 0);
        save(6);
        writer.reset();
        EXPECT_EQ(NamesIn(run_), (Names{"step_00000004", "step_00000006", "step_00000010"}));
    });
}

TEST_F(CheckpointWriterTest, ReplacesACheckpointOfTheSameStep) {
    Alone([&](const ToyTraining& training) {
        const auto writer = training.MakeWriter(run_);
        EXPECT_EQ(training.Save(*writer, 3, 1).error, "");
        EXPECT_EQ(training.Save(*writer, 3, 2).error, "");
    });
    EXPECT_EQ(NamesIn(run_), Names{"step_00000003"});
    EXPECT_EQ(DifferenceFrom(2, run_ + "/step_00000003"), "");
}

TEST_F(CheckpointWriterTest, ARunThatEndsWhileItReplacesACheckpointLeavesTheOldOne) {
    Alone([&](const ToyTraining& training) {
        EXPECT_EQ(training.Save(*training.MakeWriter(run_), 3, 1).error, "");
        std::filesystem::rename(run_ + "/step_00000003", run_ + "/step_00000003.old");
        EXPECT_EQ(FindCheckpoint(run_), run_ + "/step_00000003.old");
        EXPECT_EQ(training.Save(*training.MakeWriter(run_), 4, 2).error, "");
        EXPECT_EQ(NamesIn(run_), (Names{"step_00000003.old", "step_00000004"}));
        EXPECT_EQ(training.Save(*training.MakeWriter(run_), 3, 3).error, "");
        EXPECT_EQ(NamesIn(run_), (Names{"step_00000003", "step_00000004"}));
        EXPECT_EQ(DifferenceFrom(3, run_ + "/step_00000003"), "");
        std::filesystem::copy(run_ + "/step_00000003", run_ + "/step_00000003.old");
        training.MakeWriter(run_);
        EXPECT_EQ(NamesIn(run_), (Names{"step_00000003", "step_00000004"}));
    });
}

TEST_F(CheckpointWriterTest, RemovesWhatEarlierRunsDidNotCompleteAndNothingElse) {
    for (const char* name :
         {"step_00000009.partial", "step_00000001.gone.partial", "notes.partial", "step_9.partial"}) {
        std::filesystem::create_directories(run_ + "/" + name);
        WriteTextFile(run_ + "/" + name + "/file", "x");
    }
    Alone([&](const ToyTraining& training) { training.MakeWriter(run_); });
    EXPECT_EQ(NamesIn(run_), (Names{"notes.partial", "step_9.partial"}));
}

TEST_F(CheckpointWriterTest, LeavesOutFilesThatADeadRunLeftInTheFolder) {
    Alone([&](const ToyTraining& training) {
        const auto writer = training.MakeWriter(run_);
        std::filesystem::create_directories(run_ + "/step_00000001.partial/folder");
        for (const char* name : {"manifest.json", "model-00001-of-00009.safetensors", "config.json.tmp.1"}) {
            WriteTextFile(run_ + "/step_00000001.partial/" + name, "x");
        }
        EXPECT_EQ(training.Save(*writer, 1, 1).error, "");
    });
    EXPECT_EQ(NamesIn(run_ + "/step_00000001").size(), 12u);
    EXPECT_EQ(DifferenceFrom(1, FindCheckpoint(run_)), "");
}

TEST_F(CheckpointWriterTest, TwoRunsCannotSaveInOneFolder) {
    Alone([&](const ToyTraining& training) {
        const auto writer = training.MakeWriter(run_);
        ExpectRefusal([&] { training.MakeWriter(run_); }, {run_, "another run saves"});
        EXPECT_EQ(training.Save(*writer, 1, 1).error, "");
    });
}

TEST_F(CheckpointWriterTest, AFolderThatCannotBeIsRefusedOnEveryRank) {
    WriteTextFile(folder_.File("file"), "");
    std::atomic<int> num_refusals = 0;
    comm::RunRanks({.shape = {.data = 3}}, [&](const comm::Mesh& mesh) {
        const ToyTraining training(mesh);
        ExpectRefusal([&] { training.MakeWriter(folder_.File("file/run")); }, {"file/run", "cannot make the folder"});
        ++num_refusals;
    });
    EXPECT_EQ(num_refusals, 3);
}

/// Units: what comes before the layers, layers 0 and 1, what comes after them.
using Parameters = std::vector<size_t>;

TEST_F(CheckpointWriterTest, WhoeverHoldsAUnitTheFilesAreTheSame) {
    const std::vector<std::vector<Parameters>> layouts = {
        {{0, 1, 2, 3, 4, 5}},
        {{0, 1, 2}, {3, 4, 5}},
        {{0, 1, 2}, {0, 1, 2}, {3, 4, 5, 0}, {3, 4, 5, 0}},  // replicas, and a last stage with its copy of wte
        {{3, 4}, {5}, {1, 2}, {0}},
        {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}};
    std::map<std::string, std::string> first;
    for (const std::vector<Parameters>& layout : layouts) {
        const std::string run = folder_.File("run" + std::to_string(&layout - layouts.data()));
        std::atomic<int> num_writers = 0;
        comm::RunRanks({.shape = {.data = static_cast<int>(layout.size())}}, [&](const comm::Mesh& mesh) {
            const ToyTraining training(mesh, layout[static_cast<size_t>(mesh.rank)]);
            training.hf->before_convert = [&, is_first = true]() mutable {
                num_writers += is_first ? 1 : 0;
                is_first = false;
            };
            const auto writer = training.MakeWriter(run);
            EXPECT_EQ(training.Save(*writer, 1, 5).path, run + "/step_00000001");
        });
        EXPECT_EQ(num_writers, static_cast<int>(layout.size())) << "ranks that write a unit";
        const auto files = FilesIn(run + "/step_00000001");
        first = first.empty() ? files : first;
        EXPECT_EQ(files, first) << "layout " << &layout - layouts.data();
        EXPECT_EQ(DifferenceFrom(5, run + "/step_00000001"), "");
    }
}

TEST_F(CheckpointWriterTest, WhereOneRankFailsAllSaySoAndTheOldCheckpointStays) {
    comm::RunRanks({.shape = {.data = 3}}, [&](const comm::Mesh& mesh) {
        const ToyTraining training(mesh);
        const auto writer = training.MakeWriter(run_);
        EXPECT_EQ(training.Save(*writer, 1, 1).error, "");
        training.hf->before_convert = [&] {
            if (mesh.rank >= 1) {
                throw Error({.where = "disk", .what = "is full"});
            }
        };
        training.SetMoment(2);
        writer->Begin(ToyTraining::StateOf(1, 2));
        writer->Wait();
        EXPECT_EQ(writer->progress(), mesh.rank == 0 ? Progress::kWritten : Progress::kFailed);
        const CheckpointWriter::Result result = writer->Commit();
        EXPECT_EQ(result.error, "[rank 1] disk: is full");
        EXPECT_EQ(result.path, "");
        mesh.world->Barrier();
        EXPECT_EQ(NamesIn(run_), Names{"step_00000001"});
        EXPECT_EQ(DifferenceFrom(1, FindCheckpoint(run_)), "");
        mesh.world->Barrier();
        training.hf->before_convert = [] {};
        EXPECT_EQ(training.Save(*writer, 1, 3).error, "");  // and it goes on
    });
    EXPECT_EQ(DifferenceFrom(3, FindCheckpoint(run_)), "");
}

TEST_F(CheckpointWriterTest, ARankThatDoesNotSeeTheFolderIsReportedAtOnce) {
    try {
        comm::RunRanks({.shape = {.data = 2}}, [&](const comm::Mesh& mesh) {
            const ToyTraining training(mesh);
            training.MakeWriter(mesh.rank == 0 ? run_ : folder_.File("of another host"));
        });
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("rank 1 does not see this folder, which rank 0 has made"),
                  std::string::npos)
            << error.what();
        EXPECT_EQ(error.exit_code(), 2);
    }
}

TEST_F(CheckpointWriterTest, RanksThatSeeOtherFoldersAreReportedWhenTheySave) {
    const std::string other = folder_.File("of another host");
    std::filesystem::create_directory(other);
    comm::RunRanks({.shape = {.data = 2}}, [&](const comm::Mesh& mesh) {
        const ToyTraining training(mesh);
        const auto writer = training.MakeWriter(mesh.rank == 0 ? run_ : other);
        const std::string error = training.Save(*writer, 1, 1).error;
        EXPECT_NE(error.find("model-00002-of-00004.safetensors: cannot open"), std::string::npos) << error;
    });
    EXPECT_EQ(NamesIn(run_), Names{});
}

TEST_F(CheckpointWriterTest, ADiskThatIsFullIsReportedWhereverItHappensAndTheOldCheckpointStays) {
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    Alone([&](const ToyTraining& training) {
        const auto writer = training.MakeWriter(run_);
        EXPECT_EQ(training.Save(*writer, 1, 1).error, "");
        int num_failures = 0;
        for (rlim_t size = 0;; size += 7) {
            const rlimit small = {.rlim_cur = size, .rlim_max = limit.rlim_max};
            ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
            const CheckpointWriter::Result result = training.Save(*writer, 1, 2);
            ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
            if (result.error.empty()) {
                break;
            }
            ++num_failures;
            EXPECT_NE(result.error.find("cannot write: File too large"), std::string::npos) << result.error;
            ASSERT_EQ(NamesIn(run_), Names{"step_00000001"});
            ASSERT_EQ(DifferenceFrom(1, FindCheckpoint(run_)), "");
        }
        EXPECT_GT(num_failures, 100);
    });
    std::signal(SIGXFSZ, old_handler);
    EXPECT_EQ(DifferenceFrom(2, FindCheckpoint(run_)), "");
}

using CheckpointWriterDeathTest = CheckpointWriterTest;

TEST_F(CheckpointWriterDeathTest, ASecondBeginAndACommitOfNothingAreBugs) {
    EXPECT_DEATH(Alone([&](const ToyTraining& training) { training.MakeWriter(run_)->Commit(); }),
                 "there is nothing to commit");
    EXPECT_DEATH(Alone([&](const ToyTraining& training) {
                     const auto writer = training.MakeWriter(run_);
                     writer->Begin({.step = 1});
                     writer->Begin({.step = 2});
                 }),
                 "the checkpoint of step 1 was not committed");
}

}  // namespace
}  // namespace infini_train::checkpoint::test
