// Memory of the ranks of a pipeline: what was foreseen, and what a run takes.

#include "infini_train/include/nn/parallel/pp/memory_prediction.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "test/nn/parallel/pp/golden_plans.h"
#include "test/support/pipeline_case.h"
#include "test/support/run_program.h"

namespace infini_train::nn::parallel {
namespace {

using infini_train::test::MakeTinyLoss;
using infini_train::test::PipelineCase;
using infini_train::test::RankRun;
using infini_train::test::TinyModelKind;
using infini_train::test::TinyRows;

MemoryPrediction Predict(const PipelineCase& run) {
    const std::unique_ptr<PipelineSchedule> schedule = MakeSchedule(run.schedule);
    const PipelineShape shape = ShapeOf(run, *schedule);
    const BoundarySpec tokens = {.shape = {run.num_rows, run.lengths[0]}, .dtype = DataType::kInt32};
    return PredictMemory(
        {.shape = shape,
         .schedule = schedule.get(),
         .dtype = run.dtype,
         .input = tokens,
         .target = tokens,
         .build_chunks = [&](int rank, const std::shared_ptr<DropoutPosition>& position,
                             const Device& device) { return MakeChunks(run, shape, rank, position, device); },
         .make_optimizer = infini_train::test::MakeAdamW,
         .loss_fn = MakeTinyLoss()});
}

void ExpectMeasuredAsPredicted(const PipelineCase& run) {
    SCOPED_TRACE(ToString(run));
    const std::vector<RankRun> ranks = RunPipeline(run);
    const MemoryPrediction prediction = Predict(run);
    ASSERT_EQ(prediction.peak_bytes.size(), ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto measured = static_cast<double>(ranks[rank].peak_bytes);
        EXPECT_NEAR(static_cast<double>(prediction.peak_bytes[rank]), measured, 0.03 * measured) << "rank " << rank;
        // Of bfloat16 parameters there are masters too.
        const int64_t bytes_of_element = run.dtype == DataType::kFloat32 ? 4 : 2 + 4;
        EXPECT_EQ(prediction.parameter_bytes[rank], bytes_of_element * ranks[rank].num_elements);
    }
}

// A message counts from when its receive is posted, in a run from when it is there: there are enough layers here for
// that to be little beside what a stage keeps.
constexpr int kNumLayers = 24;

/// P 1, 2 and 4, both dtypes.
void ExpectScheduleAsPredicted(const std::string& schedule, int num_chunks) {
    for (const int num_ranks : {1, 2, 4}) {
        for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
            for (const TinyModelKind kind : {TinyModelKind::kGpt2, TinyModelKind::kUntiedLlama}) {
                ExpectMeasuredAsPredicted({.model = {.kind = kind, .num_layers = kNumLayers, .dropout = 0.25f},
                                           .dtype = dtype,
                                           .num_microbatches = 6,
                                           .lengths = {24},
                                           .num_steps = 2,
                                           .num_ranks = num_ranks,
                                           .num_chunks = num_chunks,
                                           .schedule = schedule});
            }
        }
    }
}

TEST(MemoryPrediction, OfGPipeIsWhatARunTakes) {
    ExpectScheduleAsPredicted("gpipe", 1);
}

TEST(MemoryPrediction, OfOneForwardOneBackwardIsWhatARunTakes) {
    ExpectScheduleAsPredicted("1f1b", 1);
    ExpectScheduleAsPredicted("1f1b_eager", 1);
}

TEST(MemoryPrediction, WithRecomputeIsWhatARunTakes) {
    for (const int num_ranks : {1, 2, 4}) {
        ExpectMeasuredAsPredicted({.model = {.num_layers = kNumLayers, .recompute = true},
                                   .num_microbatches = 6,
                                   .num_steps = 2,
                                   .num_ranks = num_ranks,
                                   .schedule = "1f1b"});
    }
}

TEST(MemoryPrediction, OfInterleavedIsWhatARunTakes) {
    ExpectScheduleAsPredicted("interleaved", 2);
}

TEST(MemoryPrediction, OfLoopedBfsIsWhatARunTakes) {
    ExpectScheduleAsPredicted("looped_bfs", 2);
}

TEST(MemoryPrediction, OfPlansWithSplitBackwardsIsWhatARunTakes) {
    const infini_train::test::TemporaryFolder folder;
    for (const std::string size : {"P2_M4", "P4_M8"}) {
        for (const std::string name : {"zb_h1", "zb_h2", "zb_v", "dualpipe_v"}) {
            const nlohmann::json numbers = test::GoldenFile().at(size).at(name);
            const std::string path = folder.File(size + name + ".json");
            infini_train::test::WriteTextFile(path, numbers.dump());
            ExpectMeasuredAsPredicted({.model = {.num_layers = kNumLayers},
                                       .num_microbatches = numbers.at("M").get<int>(),
                                       .lengths = {24},
                                       .num_steps = 2,
                                       .num_ranks = numbers.at("P").get<int>(),
                                       .num_chunks = numbers.at("V").get<int>(),
                                       .schedule = path});
        }
    }
}

TEST(PipelineMemory, OfAllRanksHasEachParameterOnceAndTheCopyOfATiedHead) {
    for (const TinyModelKind kind : {TinyModelKind::kGpt2, TinyModelKind::kTiedLlama, TinyModelKind::kUntiedLlama}) {
        PipelineCase run = {.model = {.kind = kind}, .num_steps = 1};
        const int64_t whole = RunPipeline(run)[0].num_elements;
        const int64_t copy = kind == TinyModelKind::kUntiedLlama ? 0
                             : kind == TinyModelKind::kGpt2      ? 16 * 16
                                                                 : infini_train::test::kTinyVocab * 16;
        for (const int num_ranks : {2, 3, 7}) {
            run.num_ranks = num_ranks;
            int64_t sum = 0;
            for (const RankRun& rank : RunPipeline(run)) {
                sum += rank.num_elements;
            }
            EXPECT_EQ(sum, whole + copy) << ToString(run);
            EXPECT_EQ(Predict(run).num_elements, whole);
        }
    }
}

TEST(PipelineMemory, OfARankFallsWithTheNumberOfRanks) {
    for (const std::string schedule : {"gpipe", "1f1b"}) {
        std::vector<int64_t> peaks;
        for (const int num_ranks : {1, 2, 4, 8}) {
            int64_t peak = 0;
            for (const RankRun& rank : RunPipeline(PipelineCase{.model = {.num_layers = 24},
                                       .num_microbatches = 2,
                                       .num_rows = 1,
                                       .num_steps = 2,
                                       .num_ranks = num_ranks,
                                       .schedule = schedule})) {
                peak = std::max(peak, rank.peak_bytes);
            }
            if (!peaks.empty()) {
                EXPECT_LT(static_cast<double>(peak), 0.65 * static_cast<double>(peaks.back())) << num_ranks;
            }
            peaks.push_back(peak);
        }
    }
}

TEST(PipelineMemory, OfARankIsThatOfItsOwnLayersFromTheStart) {
    const PipelineCase run = {.model = {.num_layers = 24}, .num_ranks = 4};
    comm::RunRanks({.shape = {.pipeline = 4}, .timeout_s = 60.0}, [&](const comm::Mesh& mesh) {
        const auto pipeline = MakePipeline(run, mesh, std::make_shared<ScheduleGPipe>());
        int64_t own_bytes = 0;
        for (const std::shared_ptr<Tensor>& parameter : pipeline->Parameters()) {
            own_bytes += static_cast<int64_t>(parameter->size_bytes());
        }
        const auto peak_bytes = static_cast<double>(mesh.device.allocator->stats().peak_bytes);
        EXPECT_LT(peak_bytes, 1.1 * static_cast<double>(own_bytes));
    });
}

// bugs.csv O90
TEST(PipelineMemory, OfOneForwardOneBackwardDoesNotGrowWithMicrobatches) {
    const auto run_of = [](int num_microbatches, const std::string& schedule) {
        return PipelineCase{.model = {.num_layers = 8},
                            .num_microbatches = num_microbatches,
                            .lengths = {32},
                            .num_steps = 2,
                            .num_ranks = 2,
                            .schedule = schedule};
    };
    // What does not depend on when a message comes: the prediction, which counts it from the post of its receive. A run
    // takes no more.
    const std::vector<int64_t> few = Predict(run_of(4, "1f1b")).peak_bytes;
    const std::vector<RankRun> few_of_gpipe = RunPipeline(run_of(4, "gpipe"));
    for (const int num_microbatches : {16, 64}) {
        const std::vector<int64_t> predicted = Predict(run_of(num_microbatches, "1f1b")).peak_bytes;
        const std::vector<RankRun> measured = RunPipeline(run_of(num_microbatches, "1f1b"));
        const std::vector<RankRun> of_gpipe = RunPipeline(run_of(num_microbatches, "gpipe"));
        for (size_t rank = 0; rank < 2; ++rank) {
            // Tokens and losses do grow: 2 x 2 x 32 x 4 bytes and two blocks a micro-batch.
            const int64_t grown = (num_microbatches - 4) * (512 + 2 * 256);
            EXPECT_LE(predicted[rank], few[rank] + grown) << num_microbatches;
            EXPECT_LE(measured[rank].peak_bytes, predicted[rank]) << num_microbatches;
            EXPECT_GE(of_gpipe[rank].peak_bytes, 2 * few_of_gpipe[rank].peak_bytes);
        }
    }
}

// bugs.csv O91
TEST(PipelineMemory, StaysAsItIsFromStepToStep) {
    for (const std::string name : {"gpipe", "interleaved"}) {
        const PipelineCase run = {
            .model = {.num_layers = 4}, .num_microbatches = 3, .num_ranks = 2, .num_chunks = name == "gpipe" ? 1 : 2};
        const std::shared_ptr<PipelineSchedule> schedule = MakeSchedule(name);
        comm::RunRanks({.shape = {.pipeline = 2}, .timeout_s = 60.0}, [&](const comm::Mesh& mesh) {
            const auto pipeline = MakePipeline(run, mesh, schedule);
            const auto optimizer = infini_train::test::MakeAdamW(pipeline->Parameters());
            Allocator::Stats early;
            for (int step = 1; step <= 200; ++step) {
                {
                    const TinyRows rows = RowsOfStep(run, step, mesh.device);
                    pipeline->TrainStep(rows.inputs, rows.targets, optimizer, MakeTinyLoss(), run.dtype);
                    if (step % 5 == 0) {
                        pipeline->EvalStep(rows.inputs, rows.targets, MakeTinyLoss(), run.dtype);
                    }
                }
                // No rank goes on while another one counts.
                mesh.world->Barrier();
                if (step == 20) {
                    early = mesh.device.allocator->stats();
                }
                mesh.world->Barrier();
            }
            const Allocator::Stats late = mesh.device.allocator->stats();
            EXPECT_EQ(late.live_bytes, early.live_bytes);
            EXPECT_EQ(late.num_system_requests, early.num_system_requests);
            EXPECT_EQ(late.reserved_bytes, early.reserved_bytes);
        });
    }
}

TEST(PipelineMemory, OfOneRankIsAskedOfTheSystemInTheFirstStepAlone) {
    comm::RunRanks({}, [](const comm::Mesh& mesh) {
        const PipelineCase run = {.model = {.num_layers = 2, .num_channels = 128}, .lengths = {31}};
        const auto pipeline = MakePipeline(run, mesh, std::make_shared<Schedule1F1B>());
        const auto optimizer = infini_train::test::MakeAdamW(pipeline->Parameters());
        const TinyRows rows = RowsOfStep(run, 0, mesh.device);
        pipeline->TrainStep(rows.inputs, rows.targets, optimizer, MakeTinyLoss(), run.dtype);
        const Allocator::Stats first = mesh.device.allocator->stats();
        for (int step = 1; step < 4; ++step) {
            pipeline->TrainStep(rows.inputs, rows.targets, optimizer, MakeTinyLoss(), run.dtype);
        }
        const Allocator::Stats last = mesh.device.allocator->stats();
        EXPECT_EQ(first.num_system_requests, last.num_system_requests);
        EXPECT_EQ(first.live_bytes, last.live_bytes);
        EXPECT_EQ(first.peak_bytes, last.peak_bytes);
    });
}

}  // namespace
}  // namespace infini_train::nn::parallel
