// The whole grid of gloo_training_test: models, dtypes, schedules, and ranks as threads and processes.
#include <string>
#include <tuple>

#include "gtest/gtest.h"

#include "test/comm/gloo_training.h"

namespace infini_train::test {
namespace {

class GlooTrainingGrid : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
    Learned Learn(const std::string& schedule, const TrainingLayout& layout) {
        const auto& [program, dtype] = GetParam();
        return TrainFresh({.program = program, .dtype = dtype, .schedule = schedule, .layout = layout});
    }
};

TEST_P(GlooTrainingGrid, HasTheBitsOfOneRankAndOfReplicasInThreads) {
    const Learned one_rank = Learn("gpipe", {});
    const Learned two_replicas = Learn("gpipe", {.num_threads = 4, .pipeline = 2});
    const Learned four_replicas = Learn("gpipe", {.num_threads = 4, .pipeline = 1});
    for (const std::string schedule : {"gpipe", "1f1b", "1f1b_eager", "interleaved", "looped_bfs"}) {
        for (const TrainingLayout& layout : {TrainingLayout{.num_processes = 1, .num_threads = 2, .pipeline = 2},
                                             TrainingLayout{.num_processes = 2, .num_threads = 1, .pipeline = 2},
                                             TrainingLayout{.num_processes = 1, .num_threads = 4, .pipeline = 4},
                                             TrainingLayout{.num_processes = 2, .num_threads = 2, .pipeline = 4},
                                             TrainingLayout{.num_processes = 4, .num_threads = 1, .pipeline = 4},
                                             TrainingLayout{.num_processes = 1, .num_threads = 4, .pipeline = 2},
                                             TrainingLayout{.num_processes = 2, .num_threads = 2, .pipeline = 2},
                                             TrainingLayout{.num_processes = 4, .num_threads = 1, .pipeline = 2}}) {
            SCOPED_TRACE(schedule);
            ExpectSame(Learn(schedule, layout), layout.num_replicas() == 1 ? one_rank : two_replicas, layout);
        }
    }
    for (const TrainingLayout& layout : {TrainingLayout{.num_processes = 2, .num_threads = 2, .pipeline = 1},
                                         TrainingLayout{.num_processes = 4, .num_threads = 1, .pipeline = 1}}) {
        ExpectSame(Learn("1f1b", layout), four_replicas, layout);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, GlooTrainingGrid,
                         testing::Combine(testing::Values("gpt2", "llama3"), testing::Values("float32", "bfloat16")),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

}  // namespace
}  // namespace infini_train::test
