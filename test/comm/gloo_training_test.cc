// The programs as processes over gloo learn what they learn as one rank, to the last bit. The whole grid is in
// gloo_training_slow_test.
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/comm/gloo_training.h"

namespace infini_train::test {
namespace {

struct Case {
    TrainingLayout layout;
    std::string schedule;
};

TEST(GlooTraining, APipelineOfProcessesLearnsWhatOneRankLearns) {
    const Learned one_rank = TrainFresh({});
    for (const auto& [layout, schedule] :
         std::vector<Case>{{{.num_processes = 2, .num_threads = 2, .pipeline = 4}, "1f1b"},
                           {{.num_processes = 4, .num_threads = 1, .pipeline = 4}, "gpipe"},
                           // Two chunks a rank: the next rank is also the previous one.
                           {{.num_processes = 2, .num_threads = 1, .pipeline = 2}, "interleaved"}}) {
        ExpectSame(TrainFresh({.schedule = schedule, .layout = layout}), one_rank, layout);
    }
}

TEST(GlooTraining, ReplicasInProcessesLearnWhatReplicasInThreadsLearn) {
    // Four replicas are a sum whose order shows.
    for (const int pipeline : {1, 2}) {
        Training training = {.program = "llama3", .dtype = "bfloat16", .schedule = "1f1b"};
        training.layout = {.num_threads = 4, .pipeline = pipeline};
        const Learned reference = TrainFresh(training);
        for (const int num_processes : {2, 4}) {
            training.layout = {.num_processes = num_processes, .num_threads = 4 / num_processes, .pipeline = pipeline};
            ExpectSame(TrainFresh(training), reference, training.layout);
        }
    }
}

TEST(GlooTraining, GoesOnInProcessesWhereOneRankStopped) {
    const std::vector<std::string> words = {
        "--dropout=0.1",      "--shuffle",       "--seed=3",         "--input_val_bin=" + TextFile("gpt2"),
        "--val_loss_every=2", "--val_batches=2", "--sample_every=2", "--text_length=8",
        "--prompt=The",       "--save_every=2"};
    Training training = {.words = words};
    training.words.push_back("--model=tiny");
    const TemporaryFolder one_rank_folder;
    const Learned one_rank = Train(training, one_rank_folder);
    EXPECT_NE(one_rank.numbers.find("val_loss"), std::string::npos) << one_rank.numbers;

    training.layout = {.num_processes = 2, .num_threads = 2, .pipeline = 4};
    ExpectSame(Train(training, TemporaryFolder()), one_rank, training.layout);

    training.words = words;
    training.words.push_back("--load=" + one_rank_folder.File("saved/step_00000002"));
    const Learned resumed = Train(training, TemporaryFolder());
    EXPECT_EQ(resumed.manifest, one_rank.manifest);
    EXPECT_TRUE(one_rank.numbers.ends_with(resumed.numbers)) << one_rank.numbers << "\n" << resumed.numbers;
    EXPECT_TRUE(resumed.numbers.starts_with("3 loss ")) << resumed.numbers;
}

}  // namespace
}  // namespace infini_train::test
