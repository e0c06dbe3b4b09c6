// --overfit_single_batch: the quickest way to see that a model can learn.

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

class Overfit : public TrainingRun {};

TEST_F(Overfit, TakesTheSameRowsUntilTheyAreKnown) {
    const Words words = Join(Start(), {"--learning_rate", "3e-3", "--shuffle", "--total_batch_size", "32"});
    for (const std::string program : {"gpt2", "llama3"}) {
        Train(program, Join(Join(Join(words, {"--overfit_single_batch"}), Steps(100)), Files(program)));
        const std::vector<double> losses = LossesOf(File(program + ".jsonl"));
        ASSERT_EQ(losses.size(), 100u);
        EXPECT_GT(losses.front(), 5.0);
        EXPECT_LT(losses.back(), 0.2) << program;
    }
    Train("gpt2", Join(Join(words, Steps(100)), Files("all")));
    EXPECT_GT(LossesOf(File("all.jsonl")).back(), 2.0);  // 26 letters at random: log(26) is 3.3
}

TEST_F(Overfit, HasTheLossOfTheSameRowsInEveryStep) {
    const Words still = Join(Start(), {"--learning_rate", "0"});
    Train("gpt2", Join(Join(Join(still, {"--overfit_single_batch"}), Steps(5)), Files("one")));
    Train("gpt2", Join(Join(still, Steps(5)), Files("all")));
    const std::vector<double> one = LossesOf(File("one.jsonl"));
    const std::vector<double> all = LossesOf(File("all.jsonl"));
    for (size_t step = 1; step < 3; ++step) {
        EXPECT_EQ(one[step], one[0]);
        EXPECT_NE(all[step], all[0]);
    }
    EXPECT_EQ(one[0], all[0]);
    EXPECT_EQ(all[3], all[0]);  // an epoch is three steps
}

}  // namespace
}  // namespace infini_train::test
