#include "example/common/pipeline_setup.h"

#include <cstdio>
#include <utility>

#include "example/common/auto_layout.h"
#include "example/common/text_file.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/modules/loss.h"
#include "infini_train/include/nn/parallel/pp/plan_file.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "infini_train/include/nn/parallel/pp/simulator.h"
#include "infini_train/include/nn/parallel/pp/timeline.h"
#include "infini_train/include/optimizer/adamw.h"
#include "infini_train/include/optimizer/sgd.h"

namespace infini_train {
namespace {

using nn::parallel::BoundarySpec;
using nn::parallel::PipelineShape;
using nn::parallel::ScheduleFromFile;
using nn::parallel::Simulation;

int NumMicrobatches(const ProgramOptions& options, int num_replicas) {
    const int64_t microbatch_tokens = options.batch_size * options.sequence_length;
    if (options.total_batch_size == 0) {
        return 1;
    }
    if (options.total_batch_size % (microbatch_tokens * num_replicas) != 0) {
        throw Error(
            {.where = "--total_batch_size",
             .what = "not a whole number of micro-batches on each replica",
             .got = StrCat(options.total_batch_size, " tokens"),
             .wanted = StrCat("a multiple of batch_size x sequence_length x replicas = ", options.batch_size, " x ",
                              options.sequence_length, " x ", num_replicas, " = ", microbatch_tokens * num_replicas)});
    }
    const int64_t num_microbatches = options.total_batch_size / (microbatch_tokens * num_replicas);
    if (num_microbatches > kMaxMicrobatches) {
        throw Error({.where = "--total_batch_size",
                     .what = "too many micro-batches in a step",
                     .got = StrCat(num_microbatches),
                     .wanted = StrCat("at most ", kMaxMicrobatches)});
    }
    return static_cast<int>(num_microbatches);
}

/// Chunks that a schedule has when nothing is said.
int DefaultChunks(const std::string& schedule_name, const ScheduleFromFile* file) {
    if (file != nullptr) {
        return file->shape().num_chunks;
    }
    return schedule_name == "interleaved" || schedule_name == "looped_bfs" ? 2 : 1;
}

/// "embedding + layers 0-3", "layer 7 + head"
std::string LayersText(const nn::parallel::LayerRange& range) {
    return StrCat(range.is_first() ? "embedding + " : "", range.size() == 1 ? "layer " : "layers ", range.begin,
                  range.size() == 1 ? "" : StrCat("-", range.end - 1), range.is_last() ? " + head" : "");
}

double MiB(int64_t bytes) {
    return static_cast<double>(bytes) / (1024.0 * 1024.0);
}

/// Of all processes.
int NumRanks(const ProgramOptions& options, const comm::ProcessPlace& process) {
    const int num_threads = process.num_processes > 1 ? 1 : options.pipeline_parallel;
    return process.num_processes * (options.nthread_per_process == 0 ? num_threads : options.nthread_per_process);
}

}  // namespace

PipelineSetup MakePipelineSetup(const ProgramOptions& options, const ModelSpec& model,
                                const comm::ProcessPlace& process) {
    const int num_ranks = NumRanks(options, process);
    if (num_ranks % options.pipeline_parallel != 0) {
        throw Error({.where = StrCat("--pipeline_parallel ", options.pipeline_parallel),
                     .what = "the ranks do not make whole pipelines",
                     .got = StrCat(num_ranks, " ranks: ", process.num_processes,
                                   process.num_processes == 1 ? " process" : " processes", " x --nthread_per_process ",
                                   num_ranks / process.num_processes),
                     .wanted = StrCat("a multiple of ", options.pipeline_parallel)});
    }
    PipelineSetup setup = {.mesh = comm::MakeMeshShape(num_ranks, /*tensor=*/1, options.pipeline_parallel),
                           .schedule_name = options.pipeline_schedule,
                           .process = process,
                           .threads_per_rank = options.threads_per_rank};
    if (setup.schedule_name.empty()) {
        // On one rank the order of GPipe would keep all micro-batches for nothing.
        setup.schedule_name =
            options.pipeline_parallel == 1 && options.virtual_pipeline_parallel <= 1 ? "1f1b" : "gpipe";
    }
    setup.schedule = nn::parallel::MakeSchedule(setup.schedule_name);
    const auto* file = dynamic_cast<const ScheduleFromFile*>(setup.schedule.get());
    setup.shape = {.num_ranks = options.pipeline_parallel,
                   .num_microbatches = NumMicrobatches(options, setup.mesh.data),
                   .num_chunks = options.virtual_pipeline_parallel > 0 ? options.virtual_pipeline_parallel
                                                                       : DefaultChunks(setup.schedule_name, file)};
    if (file != nullptr) {
        setup.shape.rank_of_stage = file->shape().rank_of_stage;
    }
    setup.schedule->CheckShape(setup.shape);
    const int num_stages = setup.shape.num_stages();
    setup.layout = nn::parallel::EvenLayout(model.num_layers, num_stages);
    if (options.pipeline_layout == "auto") {
        if (process.num_processes > 1) {
            throw Error(
                {.where = "--pipeline_layout auto",
                 .what = "processes would not measure the same; run one with --dry_run, and pass what it chooses",
                 .got = StrCat(process.num_processes, " processes")});
        }
        const AutoLayout chosen = ChooseLayout(options, model, num_stages, num_ranks);
        setup.layout = chosen.layout;
        setup.layout_note = chosen.note;
    } else if (!options.pipeline_layout.empty()) {
        setup.layout = nn::parallel::ParseLayout(options.pipeline_layout, model.num_layers, num_stages);
    }
    return setup;
}

std::vector<std::shared_ptr<nn::Module>> BuildChunks(const PipelineSetup& setup, const ModelSpec& model, int rank,
                                                     const std::shared_ptr<nn::DropoutPosition>& position,
                                                     const Device& device) {
    std::vector<std::shared_ptr<nn::Module>> chunks;
    for (int chunk = 0; chunk < setup.shape.num_chunks; ++chunk) {
        const auto stage = static_cast<size_t>(setup.shape.StageOf(rank, chunk));
        chunks.push_back(model.build(setup.layout[stage], position, device));
    }
    return chunks;
}

std::shared_ptr<optimizers::Optimizer> MakeOptimizer(const ProgramOptions& options, const TensorList& parameters) {
    if (options.use_adamw) {
        return std::make_shared<optimizers::AdamW>(parameters,
                                                   optimizers::AdamW::Options{.beta1 = options.beta1,
                                                                              .beta2 = options.beta2,
                                                                              .eps = options.eps,
                                                                              .weight_decay = options.weight_decay});
    }
    return std::make_shared<optimizers::Sgd>(
        parameters, optimizers::Sgd::Options{.momentum = options.momentum, .weight_decay = options.weight_decay});
}

std::shared_ptr<nn::Module> MakeLoss(const ModelSpec& model) {
    return std::make_shared<nn::CrossEntropyLoss>(nn::CrossEntropyLoss::Options{.vocab_size = model.vocab_size});
}

nn::parallel::MemoryPrediction PredictMemory(const PipelineSetup& setup, const ModelSpec& model,
                                             const ProgramOptions& options) {
    const BoundarySpec tokens = {.shape = {options.batch_size, options.sequence_length}, .dtype = DataType::kInt32};
    return nn::parallel::PredictMemory(
        {.shape = setup.shape,
         .schedule = setup.schedule.get(),
         .dtype = options.dtype,
         .input = tokens,
         .target = tokens,
         .build_chunks = [&](int rank, const std::shared_ptr<nn::DropoutPosition>& position,
                             const Device& device) { return BuildChunks(setup, model, rank, position, device); },
         .make_optimizer = [&](const TensorList& parameters) { return MakeOptimizer(options, parameters); },
         .loss_fn = MakeLoss(model)});
}

void PrintPlan(const PipelineSetup& setup, const nn::parallel::MemoryPrediction& prediction) {
    const PipelineShape& shape = setup.shape;
    const Simulation simulation = nn::parallel::Simulate(shape, setup.schedule->PlanAllRanks(shape), {});
    std::printf("plan: %s, P=%d, M=%d, V=%d, DP=%d; layers of the stages %s\n", setup.schedule_name.c_str(),
                shape.num_ranks, shape.num_microbatches, shape.num_chunks, setup.mesh.data,
                nn::parallel::ToString(setup.layout).c_str());
    std::printf("%s", nn::parallel::TimelineText(shape, simulation).c_str());
    std::printf("bubble %.1f %% of %g units of time (forward 1, backward 2 a chunk)\n",
                100.0 * simulation.bubble_makespan, simulation.makespan);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        const auto r = static_cast<size_t>(rank);
        std::string layers;
        for (int chunk = 0; chunk < shape.num_chunks; ++chunk) {
            layers +=
                (chunk == 0 ? "" : ", ") + LayersText(setup.layout[static_cast<size_t>(shape.StageOf(rank, chunk))]);
        }
        std::printf(
            "rank %d: %s; parameters %.1f MiB; activations of up to %d x a chunk and a micro-batch, %.1f MiB; "
            "predicted "
            "peak %.1f MiB\n",
            rank, layers.c_str(), MiB(prediction.parameter_bytes[r]), prediction.plan.peak_chunks[r],
            MiB(prediction.plan.peak_bytes[r]), MiB(prediction.peak_bytes[r]));
    }
}

void WritePlanJson(const std::string& path, const PipelineSetup& setup,
                   const nn::parallel::MemoryPrediction& prediction) {
    WriteTextFile(
        "--plan_json", path,
        nn::parallel::PlanJson(setup.shape, setup.schedule->PlanAllRanks(setup.shape), prediction.peak_bytes));
}

}  // namespace infini_train
