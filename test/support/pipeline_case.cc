#include "test/support/pipeline_case.h"

#include <bit>
#include <cstring>
#include <map>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "infini_train/include/optimizer/adamw.h"
#include "test/support/reference_step.h"

namespace infini_train::test {
namespace {

using nn::parallel::PipelineParallel;
using nn::parallel::PipelineSchedule;
using nn::parallel::PipelineShape;
using nn::parallel::ScheduleFromFile;

constexpr uint64_t kDropoutSeed = 3;
constexpr uint64_t kEvalSeed = 1000;  // the rows of no step
constexpr int kEvalMicrobatches = 3;  // of a replica
// Whatever a rank waits for takes milliseconds, on a busy machine too.
constexpr double kTimeoutS = 60.0;

std::shared_ptr<nn::DropoutPosition> MakePosition() {
    auto position = std::make_shared<nn::DropoutPosition>();
    position->seed = kDropoutSeed;
    return position;
}

TinyRows EvalRows(const PipelineCase& run, const Device& device) {
    return MakeRows(kEvalSeed, run.num_rows * kEvalMicrobatches * run.num_replicas, run.lengths[0], device);
}

std::string BytesOf(const Tensor& tensor) {
    std::string bytes(tensor.size_bytes(), '\0');
    CopyToHost(tensor, bytes.data());
    return bytes;
}

/// The rows of this replica.
TinyRows OwnRows(const TinyRows& rows, const comm::Mesh& mesh) {
    const int64_t num_rows = rows.inputs->dim(0) / mesh.shape.data;
    return SliceRows(rows, mesh.position.data * num_rows, (mesh.position.data + 1) * num_rows);
}

/// The first place where two lists differ.
std::string DifferenceOf(const std::string& what, const std::vector<uint32_t>& got,
                         const std::vector<uint32_t>& wanted) {
    if (got.size() != wanted.size()) {
        return StrCat(got.size(), " values of ", what, " instead of ", wanted.size(), "; ");
    }
    for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] != wanted[i]) {
            return StrCat(what, " of step ", i, " is ", std::bit_cast<float>(got[i]), " instead of ",
                          std::bit_cast<float>(wanted[i]), "; ");
        }
    }
    return "";
}

}  // namespace

std::string ToString(const PipelineCase& run) {
    const char* kind = run.model.kind == TinyModelKind::kGpt2        ? "gpt2"
                       : run.model.kind == TinyModelKind::kTiedLlama ? "tied llama"
                                                                     : "untied llama";
    return StrCat(kind, " L ", run.model.num_layers, " ", Name(run.dtype), " dropout ", run.model.dropout,
                  run.model.recompute ? " recompute" : "", run.evaluates ? " evaluates" : "", ", P ", run.num_ranks,
                  " DP ", run.num_replicas, " M ", run.num_microbatches, " V ", run.num_chunks, " ", run.schedule);
}

PipelineShape ShapeOf(const PipelineCase& run, const PipelineSchedule& schedule) {
    PipelineShape shape = {
        .num_ranks = run.num_ranks, .num_microbatches = run.num_microbatches, .num_chunks = run.num_chunks};
    if (const auto* file = dynamic_cast<const ScheduleFromFile*>(&schedule); file != nullptr) {
        shape.rank_of_stage = file->shape().rank_of_stage;
    }
    return shape;
}

std::vector<std::shared_ptr<nn::Module>> MakeChunks(const PipelineCase& run, const PipelineShape& shape, int rank,
                                                    const std::shared_ptr<nn::DropoutPosition>& position,
                                                    const Device& device) {
    const nn::parallel::StageLayout layout = nn::parallel::EvenLayout(run.model.num_layers, shape.num_stages());
    std::vector<std::shared_ptr<nn::Module>> chunks;
    for (int chunk = 0; chunk < shape.num_chunks; ++chunk) {
        const auto stage = static_cast<size_t>(shape.StageOf(rank, chunk));
        chunks.push_back(MakeLayers(run.model, layout[stage], position, device));
    }
    return chunks;
}

std::shared_ptr<optimizers::Optimizer> MakeAdamW(const TensorList& parameters) {
    return std::make_shared<optimizers::AdamW>(parameters,
                                               optimizers::AdamW::Options{.lr = 0.01f, .weight_decay = 0.1f});
}

TinyRows RowsOfStep(const PipelineCase& run, int step, const Device& device) {
    const int64_t num_rows = run.num_rows * run.num_microbatches * run.num_replicas;
    return MakeRows(static_cast<uint64_t>(step), num_rows, run.lengths[static_cast<size_t>(step) % run.lengths.size()],
                    device);
}

std::unique_ptr<PipelineParallel> MakePipeline(const PipelineCase& run, const comm::Mesh& mesh,
                                               const std::shared_ptr<PipelineSchedule>& schedule) {
    const PipelineShape shape = ShapeOf(run, *schedule);
    const std::shared_ptr<nn::DropoutPosition> position = MakePosition();
    std::vector<std::shared_ptr<nn::Module>> chunks =
        MakeChunks(run, shape, mesh.position.pipeline, position, mesh.device);
    for (const std::shared_ptr<nn::Module>& chunk : chunks) {
        SetValues(*chunk, run.dtype);
    }
    return std::make_unique<PipelineParallel>(std::move(chunks), mesh,
                                              PipelineParallel::Options{.num_microbatches = run.num_microbatches,
                                                                        .max_grad_norm = run.max_norm,
                                                                        .schedule = schedule,
                                                                        .rank_of_stage = shape.rank_of_stage,
                                                                        .dropout_position = position});
}

void TakeParameters(const nn::Module& module, RunNumbers* numbers) {
    for (const auto& [name, tensor] : module.NamedParameters()) {
        const std::string master = tensor->master() == nullptr ? "" : BytesOf(*tensor->master());
        numbers->parameters.emplace_back(name, BytesOf(*tensor) + master);
    }
}

RunNumbers RunReference(const PipelineCase& run) {
    const Device device = run.device == DeviceType::kCUDA ? MakeCudaDevice(0) : MakeCpuDevice();
    const std::shared_ptr<nn::DropoutPosition> position = MakePosition();
    const ReferenceModel model = {
        .net = MakeWhole(run.model, run.dtype, position, device), .position = position, .loss_fn = MakeTinyLoss()};
    const std::shared_ptr<optimizers::Optimizer> optimizer = MakeAdamW(model.net->Parameters());
    RunNumbers numbers;
    for (int step = 0; step < run.num_steps; ++step) {
        const TinyRows rows = RowsOfStep(run, step, device);
        const ReferenceResult result = ReferenceStep(model, rows.inputs, rows.targets,
                                                     run.num_microbatches * run.num_replicas, run.max_norm, *optimizer);
        EXPECT_GT(result.grad_norm, run.max_norm) << "nothing is clipped in step " << step;
        numbers.losses.push_back(std::bit_cast<uint32_t>(result.loss));
        numbers.grad_norms.push_back(std::bit_cast<uint32_t>(result.grad_norm));
        if (run.evaluates) {
            const TinyRows other = EvalRows(run, device);
            numbers.eval_losses.push_back(std::bit_cast<uint32_t>(
                ReferenceEvalStep(model, other.inputs, other.targets, kEvalMicrobatches * run.num_replicas)));
        }
    }
    TakeParameters(*model.net, &numbers);
    return numbers;
}

RankRun RunOnRank(const PipelineCase& run, const comm::Mesh& mesh, const std::shared_ptr<PipelineSchedule>& schedule) {
    const std::unique_ptr<PipelineParallel> pipeline = MakePipeline(run, mesh, schedule);
    const std::shared_ptr<optimizers::Optimizer> optimizer = MakeAdamW(pipeline->Parameters());
    const std::shared_ptr<nn::Module> loss_fn = MakeTinyLoss();
    RankRun result;
    for (int step = 0; step < run.num_steps; ++step) {
        {
            const TinyRows rows = OwnRows(RowsOfStep(run, step, mesh.device), mesh);
            const float loss = pipeline->TrainStep(rows.inputs, rows.targets, optimizer, loss_fn, run.dtype);
            result.numbers.losses.push_back(std::bit_cast<uint32_t>(loss));
            result.numbers.grad_norms.push_back(std::bit_cast<uint32_t>(pipeline->grad_norm()));
        }
        if (run.evaluates) {
            const TinyRows rows = OwnRows(EvalRows(run, mesh.device), mesh);
            const float loss = pipeline->EvalStep(rows.inputs, rows.targets, loss_fn, run.dtype, kEvalMicrobatches);
            result.numbers.eval_losses.push_back(std::bit_cast<uint32_t>(loss));
        }
    }
    TakeParameters(*pipeline, &result.numbers);
    for (const std::shared_ptr<Tensor>& parameter : pipeline->Parameters()) {
        result.num_elements += parameter->num_elements();
    }
    result.peak_bytes = mesh.device.allocator->stats().peak_bytes;
    result.live_bytes = mesh.device.allocator->stats().live_bytes;
    return result;
}

std::vector<RankRun> RunPipeline(const PipelineCase& run) {
    const std::shared_ptr<PipelineSchedule> schedule = nn::parallel::MakeSchedule(run.schedule);
    const comm::MeshShape shape = {.data = run.num_replicas, .pipeline = run.num_ranks};
    std::vector<RankRun> ranks(static_cast<size_t>(shape.num_ranks()));
    comm::RunRanks(
        {.shape = shape,
         .device = run.device,
         .transport = run.transport,
         .timeout_s = kTimeoutS,
         .threads_per_rank = run.threads_per_rank},
        [&](const comm::Mesh& mesh) { ranks[static_cast<size_t>(mesh.rank)] = RunOnRank(run, mesh, schedule); });
    return ranks;
}

std::string Difference(const PipelineCase& run, const RunNumbers& reference, const std::vector<RankRun>& ranks) {
    std::string difference;
    std::map<std::string, std::vector<size_t>> ranks_of_name;
    const std::map<std::string, std::string> wanted(reference.parameters.begin(), reference.parameters.end());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const RunNumbers& numbers = ranks[rank].numbers;
        const std::string own = DifferenceOf("loss", numbers.losses, reference.losses) +
                                DifferenceOf("norm", numbers.grad_norms, reference.grad_norms) +
                                DifferenceOf("evaluation", numbers.eval_losses, reference.eval_losses);
        difference += own.empty() ? "" : StrCat("rank ", rank, ": ", own);
        for (const auto& [name, bytes] : numbers.parameters) {
            ranks_of_name[name].push_back(rank);
            const auto found = wanted.find(name);
            if (found == wanted.end() || found->second != bytes) {
                difference += StrCat("rank ", rank, ": ", name, "; ");
            }
        }
    }
    for (const auto& [name, bytes] : wanted) {
        const bool has_two = name == "wte.weight" && run.model.is_tied() && run.num_ranks * run.num_chunks > 1;
        const size_t num_copies = static_cast<size_t>(run.num_replicas) * (has_two ? 2 : 1);
        if (ranks_of_name[name].size() != num_copies) {
            difference += StrCat(ranks_of_name[name].size(), " copies of ", name, "; ");
        }
    }
    return difference;
}

}  // namespace infini_train::test
