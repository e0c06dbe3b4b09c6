// Trainings that are cut into three against one that runs through: the same bits, whatever the ranks.

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

constexpr int kFirstCut = 2;   // in the second shard of the first epoch
constexpr int kSecondCut = 5;  // in the second epoch
constexpr int kEnd = 8;        // in the third

class Resume : public TrainingRun {
 protected:
    /// The flags of each of the three parts of a run that is cut.
    struct Layouts {
        Words first = {};
        Words second = {};
        Words third = {};
    };

    void TrainWhole(const std::string& program, const Words& start, const std::string& name = "whole") const {
        Train(program, Join(Join(start, Steps(kEnd)), Files(name)));
    }
    void TrainCut(const std::string& program, const Words& start, const Layouts& layouts,
                  const std::string& name = "cut") const {
        Train(program, Join(Join(Join(start, Steps(kFirstCut)), Files(name)), layouts.first));
        const Words load = Join({"--load", File(name)}, Files(name));  // all that is not given: from the checkpoint
        Train(program, Join(Join(load, Steps(kSecondCut)), layouts.second));
        Train(program, Join(Join(load, Steps(kEnd)), layouts.third));
    }

    void ExpectTheSame(const std::string& program, const Words& start, const std::vector<Layouts>& cuts) const {
        TrainWhole(program, start);
        const std::string whole = Numbers("whole");
        EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), kEnd) << whole;
        for (size_t i = 0; i < cuts.size(); ++i) {
            const std::string name = "cut" + std::to_string(i);
            TrainCut(program, start, cuts[i], name);
            EXPECT_EQ(Numbers(name), whole) << program << ", cut " << i;
            EXPECT_EQ(DifferentFiles(StepFolder("whole", kEnd), StepFolder(name, kEnd)), "")
                << program << ", cut " << i;
        }
    }
};

TEST_F(Resume, HasTheBitsOfARunThatWasNotCutForGpt2) {
    ExpectTheSame(
        "gpt2", Rich(),
        {{},
         {{"--pipeline_parallel", "3"},
          {"--pipeline_parallel", "2", "--pipeline_schedule", "interleaved"},
          {"--pipeline_parallel", "8"}},
         {{"--pipeline_parallel", "2", "--pipeline_layout", "5,3", "--pipeline_schedule", "1f1b"},
          {},
          {"--pipeline_parallel", "2", "--pipeline_schedule", "looped_bfs", "--virtual_pipeline_parallel", "4"}}});
}

TEST_F(Resume, HasTheBitsOfARunThatWasNotCutForLlama3) {
    ExpectTheSame(
        "llama3", Rich(),
        {{{"--pipeline_parallel", "8"}, {}, {"--pipeline_parallel", "2", "--pipeline_schedule", "interleaved"}}});
}

TEST_F(Resume, HasTheBitsOfARunThatWasNotCutForGpt2InBFloat16) {
    ExpectTheSame("gpt2", Join(Rich(), {"--dtype", "bfloat16"}),
                  {{{}, {"--pipeline_parallel", "3"}, {"--pipeline_parallel", "2"}}});
}

TEST_F(Resume, HasTheBitsOfARunThatWasNotCutForLlama3InBFloat16) {
    ExpectTheSame("llama3", Join(Rich(), {"--dtype", "bfloat16"}),
                  {{{"--pipeline_parallel", "2"}, {}, {"--pipeline_parallel", "3"}}});
}

TEST_F(Resume, HasTheBitsOfARunThatWasNotCutWithSgd) {
    ExpectTheSame("gpt2", Join(Rich(), {"--optimizer", "sgd"}),
                  {{{"--pipeline_parallel", "2"}, {}, {"--pipeline_parallel", "3"}}});
}

TEST_F(Resume, HasTheBitsOfARunThatWasNotCutWithMomentum) {
    ExpectTheSame("gpt2", Join(Rich(), {"--optimizer", "sgd", "--momentum", "0.9"}),
                  {{{"--pipeline_parallel", "3"}, {"--pipeline_parallel", "2"}, {}}});
}

TEST_F(Resume, GoesOnInTheShardInWhichItWasSaved) {
    ExpectTheSame("gpt2", Start(), {{}});
    const std::string state = ReadTextFile(StepFolder("cut0", kSecondCut) + "/trainer_state.json");
    EXPECT_TRUE(Contains(state, "\"epoch\": 1,\n    \"row\": 16")) << state;
    // Another shard in the middle has other tokens: the numbers do depend on it.
    const std::string numbers = Numbers("whole");
    std::string text = ReadTextFile(File("shard_b.txt"));
    std::reverse(text.begin(), text.end());
    WriteTextFile(File("shard_b.txt"), text);
    Train("gpt2", Join({"--load", StepFolder("cut0", kFirstCut), "--metrics_file", File("cut0.jsonl")}, Steps(kEnd)));
    EXPECT_NE(Numbers("cut0"), numbers);
}

TEST_F(Resume, HasTheBitsOfARunThatWasNotCutOnReplicas) {
    const Words replicas = {"--nthread_per_process", "2"};
    const Words pipelines = {"--nthread_per_process", "4", "--pipeline_parallel", "2"};
    TrainWhole("gpt2", Join(Rich(), replicas));
    TrainCut("gpt2", Rich(), {replicas, pipelines, replicas});
    EXPECT_EQ(Numbers("cut"), Numbers("whole"));
    EXPECT_EQ(DifferentFiles(StepFolder("whole", kEnd), StepFolder("cut", kEnd)), "");
}

TEST_F(Resume, GoesOnWithAnotherNumberOfReplicas) {
    TrainWhole("gpt2", Rich());
    TrainCut("gpt2", Rich(), {{}, {"--nthread_per_process", "2"}, {"--nthread_per_process", "4"}});
    const std::vector<double> whole = LossesOf(File("whole.jsonl"));
    const std::vector<double> cut = LossesOf(File("cut.jsonl"));
    ASSERT_EQ(cut.size(), whole.size());
    for (size_t step = 0; step < whole.size(); ++step) {
        // Replicas add their gradients in another order; AdamW at this learning rate makes more of it.
        EXPECT_NEAR(cut[step], whole[step], 1e-3 * whole[step]) << step;
    }
}

TEST_F(Resume, GoesOnWithASingleBatchThatIsOverfit) {
    ExpectTheSame("gpt2", Join(Rich(), {"--overfit_single_batch"}), {{}});
}

TEST_F(Resume, ChangesTheDtypeOfTheComputations) {
    TrainWhole("gpt2", Rich());
    for (const std::string dtype : {"float32", "bfloat16"}) {
        const std::string name = "from_" + dtype;
        const std::string other = dtype == "float32" ? "bfloat16" : "float32";
        Train("gpt2", Join(Join(Join(Rich(), Steps(kSecondCut)), Files(name)), {"--dtype", dtype}));
        const ProgramResult result =
            Train("gpt2", Join(Join({"--load", File(name), "--dtype", other}, Steps(kEnd)), Files(name)));
        EXPECT_TRUE(Contains(result.out, "note: --dtype " + other + ", the checkpoint was made with " + dtype))
            << result.out;
        const std::vector<double> whole = LossesOf(File("whole.jsonl"));
        const std::vector<double> losses = LossesOf(File(name + ".jsonl"));
        ASSERT_EQ(losses.size(), whole.size());
        for (size_t step = 0; step < whole.size(); ++step) {
            EXPECT_NEAR(losses[step], whole[step], 0.02 * whole[step]) << dtype << " " << step;
        }
    }
}

TEST_F(Resume, WritesTheSameBytesWhateverTheRanks) {
    for (const std::string program : {"gpt2", "llama3"}) {
        for (const std::string num_stages : {"1", "2", "3", "8"}) {
            Train(program, Join(Join(Rich(), Steps(3)),
                                {"--save", File(program + num_stages), "--pipeline_parallel", num_stages}));
            EXPECT_EQ(DifferentFiles(StepFolder(program + "1", 3), StepFolder(program + num_stages, 3)), "")
                << num_stages;
        }
    }
}

TEST_F(Resume, StartsFromAFileAndLeavesAHuggingFaceFolder) {
    const std::string reference = std::string(INFINI_SOURCE_DIR) + "/test/reference/";
    const Words validation = {"--input_val_bin", File("shard_b.txt"), "--val_batches", "3"};
    for (const auto& [program, file] : {std::pair{"gpt2", "gpt2_tiny.bin"}, {"llama3", "llama_tiny.bin"}}) {
        const Words start = {"--llmc_filepath",   reference + file,
                             "--input_bin",       File("shard_a.txt"),
                             "--batch_size",      "2",
                             "--sequence_length", "16"};
        Train(program, Join(Join(Join(start, validation), Steps(3)), Files(program)));
        const std::string end = Numbers(program);
        // A step of learning rate 0 leaves the weights as they are: its validation is of those that were loaded.
        const Words still = Join(validation, {"--input_bin", File("shard_a.txt"), "--batch_size", "2",
                                              "--sequence_length", "16", "--learning_rate", "0"});
        const auto val_loss = [](const std::string& numbers) { return numbers.substr(numbers.rfind("val_loss")); };
        for (const char* flag : {"--load", "--hf_dir"}) {
            const int num_steps = flag == std::string("--load") ? 4 : 1;
            Train(program, Join(Join(still, Steps(num_steps)),
                                {flag, StepFolder(program, 3), "--metrics_file", File("again.jsonl")}));
            EXPECT_EQ(val_loss(Numbers("again")), val_loss(end)) << program << " " << flag;
        }
    }
}

}  // namespace
}  // namespace infini_train::test
