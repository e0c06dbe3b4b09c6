// What a run does beside its steps leaves no trace in them.

#include <sstream>
#include <string>

#include "gtest/gtest.h"

#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

class Validation : public TrainingRun {
 protected:
    /// The lines of the steps alone.
    std::string StepNumbers(const std::string& name) const {
        std::istringstream lines(Numbers(name));
        std::string numbers;
        for (std::string line; std::getline(lines, line);) {
            numbers += Contains(line, "val_loss") ? "" : line + "\n";
        }
        return numbers;
    }
};

TEST_F(Validation, AndSamplesTakeNoRowAndNoRandomNumberFromTheTraining) {
    for (const std::string num_stages : {"1", "3"}) {
        const Words words = Join(Join(Rich(), Steps(5)), {"--pipeline_parallel", num_stages});
        Train("gpt2", Join(words, Files("plain")));
        Train("gpt2", Join(Join(words, Files("watched")),
                           {"--input_val_bin", File("shard_b.txt"), "--val_batches", "2", "--val_loss_every", "1",
                            "--sample_every", "2", "--text_length", "7", "--prompt", "a"}));
        EXPECT_NE(Numbers("watched"), Numbers("plain"));
        EXPECT_EQ(StepNumbers("watched"), Numbers("plain")) << num_stages << " stages";
        EXPECT_EQ(DifferentFiles(StepFolder("watched", 5), StepFolder("plain", 5)), "");
    }
}

}  // namespace
}  // namespace infini_train::test
