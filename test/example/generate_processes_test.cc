// The program `generate` on processes: the text of one rank, and an end with any of them.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/comm/processes.h"
#include "test/support/background_program.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

using Words = std::vector<std::string>;

const std::string kReference = std::string(INFINI_SOURCE_DIR) + "/test/reference";

Words Join(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

Words TextWords(int num_tokens) {
    return {"--prompt", "Once", "--text_length", std::to_string(num_tokens), "--device", "cpu"};
}

Words ReferenceText(int num_tokens) {
    return Join(TextWords(num_tokens), {"--llmc_filepath", kReference + "/gpt2_tiny.bin"});
}

ProgramResult OnProcesses(int num_processes, const Words& words) {
    return RunProgram(
        std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh",
        Join({"-n", std::to_string(num_processes), "--", std::string(INFINI_BINARY_DIR) + "/generate"}, words));
}

TEST(GenerateProcesses, WriteTheTextOfOneRankOnce) {
    const TemporaryFolder folder;  // of a model with layers for four stages
    const ProgramResult training =
        RunProgram("gpt2", {"--model", "tiny", "--input_bin", kReference + "/text_u16.bin", "--num_iteration", "1",
                            "--save", folder.File("run"), "--device", "cpu"});
    ASSERT_EQ(training.exit_code, 0) << training.err;
    for (const Words& sampling :
         {Words{"--temperature", "0"},
          {"--temperature", "0.8", "--top_k", "40", "--top_p", "0.95", "--seed", "7", "--num_samples", "2"}}) {
        const Words words = Join(Join(TextWords(24), {"--load", folder.File("run")}), sampling);
        const ProgramResult one = RunProgram("generate", words);
        ASSERT_EQ(one.exit_code, 0) << one.err;
        const ProgramResult two = OnProcesses(2, Join(words, {"--pipeline_parallel", "2"}));
        EXPECT_EQ(two.exit_code, 0) << two.err;
        EXPECT_EQ(two.out, one.out);
        const ProgramResult mixed =
            OnProcesses(2, Join(words, {"--pipeline_parallel", "4", "--nthread_per_process", "2"}));
        EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
        EXPECT_EQ(mixed.out, one.out);
    }
}

TEST(GenerateProcesses, RefuseRanksWithoutAStage) {
    const ProgramResult result = OnProcesses(2, ReferenceText(8));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("--pipeline_parallel: a text is written by one rank a stage (got 1 for 2 ranks, wanted "
                              "2)\n"),
              std::string::npos)
        << result.err;
}

/// Each of two processes, with what a launcher tells it.
class TwoProcesses {
 public:
    explicit TwoProcesses(const std::vector<Words>& words) {
        const std::string port = std::to_string(comm::FreePort());
        for (size_t i = 0; i < 2; ++i) {
            const std::string rank = std::to_string(i);
            const Words launcher = {"RANK=" + rank,        "WORLD_SIZE=2",
                                    "LOCAL_RANK=" + rank,  "MASTER_ADDR=127.0.0.1",
                                    "MASTER_PORT=" + port, std::string(INFINI_BINARY_DIR) + "/generate",
                                    "--pipeline_parallel", "2"};
            programs.push_back(std::make_unique<BackgroundProgram>("/usr/bin/env", Join(launcher, words[i]), OutOf(i)));
        }
    }
    std::string OutOf(size_t process) const { return folder_.File(std::to_string(process)); }

    std::vector<std::unique_ptr<BackgroundProgram>> programs;

 private:
    TemporaryFolder folder_;
};

TEST(GenerateProcesses, EndWhenOneIsKilledInATextAndSayForWhichToken) {
    const Words words = ReferenceText(1000000);
    TwoProcesses run({words, words});
    run.programs[0]->WaitForFile(run.OutOf(0), 100);
    run.programs[1]->Signal(SIGKILL);
    EXPECT_EQ(run.programs[0]->Wait(), 1);
    const std::string out = ReadTextFile(run.OutOf(0));
    EXPECT_NE(out.find("process 1 ("), std::string::npos) << out;
    EXPECT_NE(out.find(" while rank 0 waited for "), std::string::npos) << out;
    EXPECT_NE(out.find(" of a text"), std::string::npos) << out;
    EXPECT_EQ(ReadTextFile(run.OutOf(1)), "");
}

TEST(GenerateProcesses, RefuseAnotherPrompt) {
    TwoProcesses run({ReferenceText(8), Join(ReferenceText(8), {"--prompt", "Twice"})});
    for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(run.programs[i]->Wait(), 2);
        const std::string out = ReadTextFile(run.OutOf(i));
        EXPECT_NE(out.find("prompt=Twice there, prompt=Once here"), std::string::npos) << out;
    }
}

}  // namespace
}  // namespace infini_train::test
