// The programs as processes over gloo learn what they learn as one rank, to the last bit.
#include <cstddef>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/str_cat.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

struct Layout {
    int num_processes = 1;
    int num_threads = 1;
    int pipeline = 1;
};

struct Model {
    std::string program;
    std::string text;
};

const Model kModels[] = {{.program = "gpt2", .text = "text_u16.bin"}, {.program = "llama3", .text = "text_u32.bin"}};

struct Learned {
    std::string metrics;   // step, loss and norm of each step
    std::string manifest;  // sizes and hashes of all files of the checkpoint

    bool operator==(const Learned&) const = default;
};

std::string MetricsThatDoNotDependOnTime(const std::string& json_lines) {
    std::string kept;
    std::istringstream stream(json_lines);
    for (std::string line; std::getline(stream, line);) {
        kept += line.substr(0, line.find(",\"lr\"")) + "\n";
    }
    return kept;
}

class GlooTraining : public testing::TestWithParam<std::tuple<size_t, std::string>> {
 protected:
    Learned Train(const Layout& layout, const std::string& schedule) {
        const Model& model = kModels[std::get<0>(GetParam())];
        const std::string& dtype = std::get<1>(GetParam());
        const TemporaryFolder folder;
        const std::vector<std::string> words = {
            "-n",
            StrCat(layout.num_processes),
            "--",
            std::string(INFINI_BINARY_DIR) + "/" + model.program,
            StrCat("--input_bin=", INFINI_SOURCE_DIR, "/test/reference/", model.text),
            "--model=tiny",
            "--device=cpu",
            "--dtype=" + dtype,
            "--batch_size=2",
            "--sequence_length=16",
            "--total_batch_size=256",
            "--num_iteration=3",
            "--grad_clip=1",
            "--timeout_s=30",
            StrCat("--nthread_per_process=", layout.num_threads),
            StrCat("--pipeline_parallel=", layout.pipeline),
            "--pipeline_schedule=" + schedule,
            "--metrics_file=" + folder.File("metrics.json"),
            "--save=" + folder.File("saved")};
        const ProgramResult result = RunProgram(std::string(INFINI_SOURCE_DIR) + "/scripts/run_local.sh", words);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return {.metrics = MetricsThatDoNotDependOnTime(ReadTextFile(folder.File("metrics.json"))),
                .manifest = ReadTextFile(folder.File("saved/step_00000003/manifest.json"))};
    }

    void ExpectSame(const Learned& learned, const Learned& reference, const Layout& layout) {
        EXPECT_NE(reference.metrics.find("\"step\":3"), std::string::npos) << reference.metrics;
        EXPECT_EQ(learned.metrics, reference.metrics) << layout.num_processes << " x " << layout.num_threads;
        EXPECT_EQ(learned.manifest, reference.manifest) << layout.num_processes << " x " << layout.num_threads;
    }
};

TEST_P(GlooTraining, APipelineOfProcessesLearnsWhatOneRankLearns) {
    const Learned one_rank = Train({}, "gpipe");
    for (const Layout& layout : {Layout{.num_processes = 2, .num_threads = 1, .pipeline = 2},
                                 Layout{.num_processes = 4, .num_threads = 1, .pipeline = 4},
                                 Layout{.num_processes = 2, .num_threads = 2, .pipeline = 4},
                                 Layout{.num_processes = 1, .num_threads = 4, .pipeline = 4}}) {
        for (const std::string schedule : {"gpipe", "1f1b"}) {
            ExpectSame(Train(layout, schedule), one_rank, layout);
        }
    }
    // Two chunks a rank: the next rank is also the previous one.
    const Layout both_ways = {.num_processes = 2, .num_threads = 1, .pipeline = 2};
    ExpectSame(Train(both_ways, "interleaved"), one_rank, both_ways);
}

TEST_P(GlooTraining, ReplicasInProcessesLearnWhatReplicasInThreadsLearn) {
    const Learned threads = Train({.num_threads = 4, .pipeline = 2}, "1f1b");
    for (const Layout& layout : {Layout{.num_processes = 2, .num_threads = 2, .pipeline = 2},
                                 Layout{.num_processes = 4, .num_threads = 1, .pipeline = 2}}) {
        ExpectSame(Train(layout, "1f1b"), threads, layout);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, GlooTraining,
                         testing::Combine(testing::Values(size_t{0}, size_t{1}),
                                          testing::Values("float32", "bfloat16")),
                         [](const auto& info) {
                             return kModels[std::get<0>(info.param)].program + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace infini_train::test
