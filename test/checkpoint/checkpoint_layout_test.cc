#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "example/common/load_weights.h"
#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/checkpoint_writer.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "test/checkpoint/tiny_checkpoint.h"
#include "test/support/pipeline_case.h"
#include "test/support/run_program.h"

// Real models spread in many ways: the files are the same, and a training goes on from them with the same bits.

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::MakeAdamW;
using infini_train::test::MakePipeline;
using infini_train::test::MakeTinyLoss;
using infini_train::test::PipelineCase;
using infini_train::test::ReadTextFile;
using infini_train::test::RowsOfStep;
using infini_train::test::TemporaryFolder;
using infini_train::test::TinyModelKind;
using infini_train::test::TinyRows;
using nn::parallel::PipelineParallel;

constexpr TinyModelKind kKinds[] = {TinyModelKind::kGpt2, TinyModelKind::kTiedLlama, TinyModelKind::kUntiedLlama};

/// P, replicas, V, schedule
struct Spread {
    int num_ranks = 1;
    int num_replicas = 1;
    int num_chunks = 1;
    const char* schedule = "gpipe";
};

PipelineCase CaseOf(TinyModelKind kind, const Spread& spread) {
    return {.model = {.kind = kind},
            .num_microbatches = 4,
            .num_ranks = spread.num_ranks,
            .num_replicas = spread.num_replicas,
            .num_chunks = spread.num_chunks,
            .schedule = spread.schedule};
}

std::map<std::string, std::string> FilesIn(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        files[entry.path().filename().string()] = ReadTextFile(entry.path().string());
    }
    return files;
}

/// Trains the steps [first, last), from a checkpoint if there is one, and saves the last.
void TrainAndSave(const PipelineCase& run, const std::string& from, int first, int last, const std::string& folder) {
    const std::shared_ptr<nn::parallel::PipelineSchedule> schedule = nn::parallel::MakeSchedule(run.schedule);
    comm::RunRanks(
        {.shape = {.data = run.num_replicas, .pipeline = run.num_ranks}, .timeout_s = 60.0, .threads_per_rank = 1},
        [&](const comm::Mesh& mesh) {
            const std::unique_ptr<PipelineParallel> pipeline = MakePipeline(run, mesh, schedule);
            const auto optimizer = MakeAdamW(pipeline->Parameters());
            if (!from.empty()) {
                VerifyChecksums(from, mesh.rank, mesh.shape.num_ranks());
                for (const std::shared_ptr<nn::Module>& chunk : pipeline->stage().chunks()) {
                    LoadWeights(*OpenWeights(run.model, from), *chunk);
                }
                LoadMoments(from, pipeline->stage().chunks(), *optimizer);
            }
            for (int step = first; step < last; ++step) {
                const TinyRows rows = RowsOfStep(run, step, mesh.device);
                const int64_t own = rows.inputs->dim(0) / run.num_replicas;
                const TinyRows own_rows = SliceRows(rows, mesh.position.data * own, (mesh.position.data + 1) * own);
                pipeline->TrainStep(own_rows.inputs, own_rows.targets, optimizer, MakeTinyLoss(), run.dtype);
            }
            CheckpointWriter writer({.folder = folder}, HfModelOf(run.model), pipeline->stage().chunks(), optimizer,
                                    mesh.world);
            writer.Begin({.step = last});
            const CheckpointWriter::Result result = writer.Commit();
            EXPECT_EQ(result.error, "") << infini_train::test::ToString(run);
        });
}

class CheckpointLayout : public testing::TestWithParam<TinyModelKind> {
 protected:
    TemporaryFolder folder_;
};

TEST_P(CheckpointLayout, NoByteOfTheFilesDependsOnTheLayout) {
    const std::vector<Spread> spreads = {{},
                                         {.num_ranks = 2},
                                         {.num_ranks = 3, .schedule = "1f1b"},
                                         {.num_chunks = 3, .schedule = "looped_bfs"},
                                         {.num_ranks = 2, .num_chunks = 2, .schedule = "interleaved"},
                                         {.num_ranks = 2, .num_chunks = 3, .schedule = "looped_bfs"},
                                         {.num_ranks = 7}};
    std::map<std::string, std::string> first;
    for (const Spread& spread : spreads) {
        const std::string run = folder_.File(StrCat("run", &spread - spreads.data()));
        TrainAndSave(CaseOf(GetParam(), spread), "", 0, 3, run);
        const auto files = FilesIn(run + "/step_00000003");
        first = first.empty() ? files : first;
        EXPECT_EQ(files.size(), 9u + 9u + 4u);
        EXPECT_TRUE(files == first) << "layout " << &spread - spreads.data();
    }
}

TEST_P(CheckpointLayout, ReplicasWriteTheFilesOfOneRank) {
    std::map<std::string, std::string> first;
    for (const Spread& spread : {Spread{}, Spread{.num_replicas = 2}, Spread{.num_ranks = 2, .num_replicas = 3}}) {
        const std::string run = folder_.File(StrCat("run", spread.num_replicas));
        TrainAndSave(CaseOf(GetParam(), spread), "", 0, 0, run);  // a step adds up their gradients in another order
        const auto files = FilesIn(run + "/step_00000000");
        first = first.empty() ? files : first;
        EXPECT_TRUE(files == first) << spread.num_replicas << " replicas";
    }
}

TEST_P(CheckpointLayout, ATrainingGoesOnWithTheSameBitsOnAnyLayoutInEitherDtype) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const auto case_of = [&](const Spread& spread) {
            PipelineCase run = CaseOf(GetParam(), spread);
            run.dtype = dtype;
            run.model.dropout = 0.1f;
            return run;
        };
        const std::string name(Name(dtype));
        const std::string whole = folder_.File(name);
        TrainAndSave(case_of({.num_ranks = 2}), "", 0, 4, whole);
        const std::string half = folder_.File(name + " half");
        TrainAndSave(case_of({.num_ranks = 3}), "", 0, 2, half);
        for (const Spread& spread :
             {Spread{}, Spread{.num_ranks = 3}, Spread{.num_ranks = 2, .num_chunks = 2, .schedule = "interleaved"}}) {
            const std::string rest = folder_.File(StrCat(name, " rest", spread.num_ranks));
            TrainAndSave(case_of(spread), FindCheckpoint(half), 2, 4, rest);
            EXPECT_TRUE(FilesIn(rest + "/step_00000004") == FilesIn(whole + "/step_00000004"))
                << infini_train::test::ToString(case_of(spread));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointLayout, testing::ValuesIn(kKinds));

}  // namespace
}  // namespace infini_train::checkpoint::test
