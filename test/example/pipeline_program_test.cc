// Pipelines as a user of the programs has them: flags in, lines and files out.

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

using nlohmann::json;

const std::string kSource = INFINI_SOURCE_DIR;

json Golden(const std::string& shape, const std::string& schedule) {
    return json::parse(ReadTextFile(kSource + "/test/nn/parallel/pp/schedules_golden.json")).at(shape).at(schedule);
}

/// Runs the tiny models on micro-batches of 2 x 32.
class PipelineProgram : public testing::Test {
 protected:
    ProgramResult Run(const std::string& program, const std::vector<std::string>& words) {
        std::vector<std::string> all = {"--model", "tiny", "--batch_size", "2", "--sequence_length", "32"};
        all.insert(all.end(), words.begin(), words.end());
        return RunProgram(program, all);
    }

    /// Loss, norm and validation loss of four steps of eight micro-batches, as they were written, and the text.
    std::string NumbersOf(const std::string& program, const std::vector<std::string>& words) {
        const std::string metrics = folder_.File("metrics.jsonl");
        const std::string tokens = kSource + "/test/reference/text_u16.bin";
        std::vector<std::string> all = {"--input_bin",        tokens, "--input_val_bin", tokens,
                                        "--val_loss_every",   "2",    "--val_batches",   "3",
                                        "--num_iteration",    "4",    "--grad_clip",     "1",
                                        "--total_batch_size", "512",  "--metrics_file",  metrics,
                                        "--prompt",           "abc",  "--text_length",   "8"};
        all.insert(all.end(), words.begin(), words.end());
        const ProgramResult result = Run(program, all);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        std::string numbers;
        std::istringstream lines(ReadTextFile(metrics));
        for (std::string line; std::getline(lines, line);) {
            const json metric = json::parse(line);
            for (const char* name : {"loss", "grad_norm", "val_loss"}) {
                numbers += metric.contains(name) ? metric.at(name).dump() + " " : "";
            }
        }
        EXPECT_EQ(std::count(numbers.begin(), numbers.end(), ' '), 4 + 4 + 2) << numbers;
        return numbers + result.out.substr(result.out.find("| text:"));
    }

    std::string GoldenFile(const std::string& shape, const std::string& schedule) {
        const std::string path = folder_.File(schedule + ".json");
        WriteTextFile(path, Golden(shape, schedule).dump());
        return path;
    }

    TemporaryFolder folder_;
};

TEST_F(PipelineProgram, GivesTheNumbersAndTheTextOfOneRank) {
    const std::vector<std::vector<std::string>> runs = {
        {"--pipeline_parallel", "2", "--pipeline_schedule", "gpipe"},
        {"--pipeline_parallel", "3", "--pipeline_schedule", "1f1b_eager"},
        {"--pipeline_parallel", "4", "--pipeline_schedule", "interleaved", "--pipeline_layout", "1,1,1,1,1,1,1,1"},
        {"--pipeline_parallel", "2", "--pipeline_schedule", "looped_bfs", "--virtual_pipeline_parallel", "3"},
        {"--pipeline_parallel", "8", "--pipeline_schedule", "1f1b"},
        {"--pipeline_parallel", "4", "--pipeline_schedule", GoldenFile("P4_M8", "zb_h1")},
        {"--pipeline_parallel", "4", "--pipeline_schedule", GoldenFile("P4_M8", "zb_v")},  // first and last on rank 0
        {"--pipeline_parallel", "2", "--pipeline_layout", "auto"},
    };
    for (const std::string program : {"gpt2", "llama3"}) {
        const std::string one_rank = NumbersOf(program, {});
        for (const std::vector<std::string>& words : runs) {
            EXPECT_EQ(NumbersOf(program, words), one_rank)
                << program << " --pipeline_parallel " << words[1] << " " << words[3];
        }
        EXPECT_NE(NumbersOf(program, {"--seed", "7"}), one_rank);
    }
}

TEST_F(PipelineProgram, WritesThePlanThatTheGoldenFileHas) {
    for (const std::string schedule : {"gpipe", "1f1b", "1f1b_eager", "interleaved", "looped_bfs"}) {
        const std::string path = folder_.File("plan.json");
        const ProgramResult result = Run("gpt2", {"--dry_run", "--plan_json", path, "--pipeline_parallel", "4",
                                                  "--total_batch_size", "512", "--pipeline_schedule", schedule});
        ASSERT_EQ(result.exit_code, 0) << result.err;
        const json plan = json::parse(ReadTextFile(path));
        const bool has_chunks = schedule == "interleaved" || schedule == "looped_bfs";
        const json golden = Golden("P4_M8", has_chunks ? schedule + "_v2" : schedule);
        for (const char* name :
             {"P", "M", "V", "order", "start", "makespan", "bubble_makespan_f", "peak_stage", "recv_slots_max"}) {
            EXPECT_EQ(plan.at(name), golden.at(name)) << schedule << " " << name;
        }
        EXPECT_EQ(plan.at("predicted_bytes").size(), 4u);
        EXPECT_GT(plan.at("predicted_bytes")[3].get<int64_t>(), 1 << 20);
    }
}

TEST_F(PipelineProgram, PrintsThePlanWithoutTokens) {
    const ProgramResult result =
        Run("llama3", {"--dry_run", "--print_plan", "--pipeline_parallel", "2", "--total_batch_size", "256"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const char* part : {"plan: gpipe, P=2, M=4, V=1", "r0| f0 f1 f2 f3 .. .. .. d0 -- d1 -- d2 -- d3 --\n",
                             "r1| .. f0 f1 f2 f3 d0 -- d1 -- d2 -- d3 --\n", "bubble 20.0 %",
                             "rank 0: embedding + layers 0-3;", "rank 1: layers 4-7 + head;", "predicted peak"}) {
        EXPECT_NE(result.out.find(part), std::string::npos) << part << " is not in: " << result.out;
    }
}

TEST_F(PipelineProgram, DrawsTheLastStep) {
    const std::string trace = folder_.File("a.json");
    const std::string figure = folder_.File("b.svg");
    NumbersOf("gpt2", {"--pipeline_parallel", "4", "--timeline", trace + "," + figure});
    int num_actions = 0;
    const json events = json::parse(ReadTextFile(trace)).at("traceEvents");
    for (const json& event : events) {
        num_actions += event.at("ph") == "X" && event.at("name") != "wait" ? 1 : 0;
    }
    EXPECT_EQ(num_actions, 4 * 8 * 2);  // ranks, micro-batches, F and D
    const std::string svg = ReadTextFile(figure);
    for (const char* part : {"measured", "simulated", "P = 4 ranks, M = 8 micro-batches", "bubble", "wait"}) {
        EXPECT_NE(svg.find(part), std::string::npos) << part;
    }
}

TEST_F(PipelineProgram, EndsAllRanksWhenOneFails) {
    const ProgramResult result =
        Run("gpt2", {"--input_bin", kSource + "/test/reference/text_u16.bin", "--pipeline_parallel", "4",
                     "--metrics_file", "/dev/full", "--num_iteration", "1000"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err, "[rank 0] --metrics_file /dev/full: cannot be written\n");
}

TEST_F(PipelineProgram, NamesWhomARankWaitedFor) {
    const ProgramResult result = Run("gpt2", {"--input_bin", kSource + "/test/reference/text_u16.bin",
                                              "--pipeline_parallel", "4", "--timeout_s", "0.001"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err.rfind("[rank ", 0), 0u) << result.err;
    EXPECT_NE(result.err.find("] waited 0.001 s for rank"), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST(MinimalPipeline, LearnsTheSameOnAnyNumberOfRanks) {
    const ProgramResult two = RunProgram("minimal_pipeline", {"2"});
    ASSERT_EQ(two.exit_code, 0) << two.err;
    const double first = std::stod(two.out.substr(two.out.find("loss ") + 5));
    const double last = std::stod(two.out.substr(two.out.rfind("loss ") + 5));
    EXPECT_LT(last, first / 100);
    for (const char* num_ranks : {"1", "3"}) {
        EXPECT_EQ(RunProgram("minimal_pipeline", {num_ranks}).out, two.out) << num_ranks;
    }
}

}  // namespace
}  // namespace infini_train::test
