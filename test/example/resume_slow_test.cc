// Every pair of layouts, for all that a checkpoint can be of: saved with one, loaded with the other.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/training_run.h"

namespace infini_train::test {
namespace {

constexpr int kCut = 4;
constexpr int kEnd = 7;

const std::vector<Words> kLayouts = {
    {},
    {"--pipeline_parallel", "2", "--pipeline_schedule", "1f1b"},
    {"--pipeline_parallel", "3", "--pipeline_layout", "2,3,3"},
    {"--pipeline_parallel", "2", "--pipeline_schedule", "interleaved"},
    {"--pipeline_parallel", "2", "--pipeline_schedule", "looped_bfs", "--virtual_pipeline_parallel", "4"},
    {"--pipeline_parallel", "8", "--pipeline_schedule", "1f1b_eager"},
};

class ResumeGrid : public TrainingRun {
 protected:
    /// Replicas add gradients in an order of their own: a whole run with as many is what a cut one is compared with.
    void ExpectTheSameOnAllPairs(const std::string& program, const Words& start, int num_replicas) const {
        const auto flags = [num_replicas](const Words& layout) {
            const int num_stages = layout.empty() ? 1 : std::stoi(layout[1]);
            return Join(layout, {"--nthread_per_process", std::to_string(num_replicas * num_stages)});
        };
        Train(program, Join(Join(Join(start, Steps(kEnd)), Files("whole")), flags({})));
        const std::string whole = Numbers("whole");
        ASSERT_EQ(std::count(whole.begin(), whole.end(), '\n'), kEnd);
        int num_same = 0;
        for (size_t from = 0; from < kLayouts.size(); ++from) {
            const std::string saved = "from" + std::to_string(from);
            Train(program, Join(Join(Join(start, Steps(kCut)), Files(saved)), flags(kLayouts[from])));
            for (size_t to = 0; to < kLayouts.size(); ++to) {
                Train(program, Join(Join({"--load", StepFolder(saved, kCut)}, Join(Files(saved), Steps(kEnd))),
                                    flags(kLayouts[to])));
                const std::string different = DifferentFiles(StepFolder("whole", kEnd), StepFolder(saved, kEnd));
                EXPECT_EQ(Numbers(saved), whole) << program << " from layout " << from << " to " << to;
                EXPECT_EQ(different, "") << program << " from layout " << from << " to " << to;
                num_same += Numbers(saved) == whole && different.empty() ? 1 : 0;
            }
        }
        std::printf("%-6s %d replica(s): %d of %zu pairs of layouts have the same bits\n", program.c_str(),
                    num_replicas, num_same, kLayouts.size() * kLayouts.size());
    }
};

TEST_F(ResumeGrid, Gpt2) {
    ExpectTheSameOnAllPairs("gpt2", Rich(), 1);
}

TEST_F(ResumeGrid, Gpt2InBFloat16) {
    ExpectTheSameOnAllPairs("gpt2", Join(Rich(), {"--dtype", "bfloat16"}), 1);
}

TEST_F(ResumeGrid, Gpt2WithMomentum) {
    ExpectTheSameOnAllPairs("gpt2", Join(Rich(), {"--optimizer", "sgd", "--momentum", "0.9"}), 1);
}

TEST_F(ResumeGrid, Gpt2OnTwoReplicas) {
    ExpectTheSameOnAllPairs("gpt2", Rich(), 2);
}

TEST_F(ResumeGrid, Llama3) {
    ExpectTheSameOnAllPairs("llama3", Rich(), 1);
}

TEST_F(ResumeGrid, Llama3InBFloat16) {
    ExpectTheSameOnAllPairs("llama3", Join(Rich(), {"--dtype", "bfloat16"}), 1);
}

TEST_F(ResumeGrid, Llama3WithoutMoments) {
    ExpectTheSameOnAllPairs("llama3", Join(Rich(), {"--optimizer", "sgd", "--lr_schedule", "wsd"}), 1);
}

}  // namespace
}  // namespace infini_train::test
