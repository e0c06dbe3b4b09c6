#include "example/common/train_loop.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "glog/logging.h"

#include "example/common/batch.h"
#include "example/common/generate.h"
#include "example/common/load_weights.h"
#include "example/common/metrics.h"
#include "example/common/mfu.h"
#include "example/common/timeline_files.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/data/byte_tokenizer.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"

namespace infini_train {
namespace {

using nn::parallel::PipelineParallel;

void CheckFinite(const StepMetrics& metrics) {
    if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm)) {
        throw Error({.where = StrCat("step ", metrics.step),
                     .what = "the loss or the gradient norm is not finite; training ends here",
                     .got = StrCat("loss ", metrics.loss, ", norm ", metrics.grad_norm),
                     .kind = Error::Kind::kRuntime});
    }
}

/// The one line that says what was missing and what would help.
[[noreturn]] void ThrowWithAdvice(const OutOfMemory& error, const RunPlan& plan, const comm::Mesh& mesh) {
    const auto mib = [](auto bytes) { return StrCat(bytes >> 20, " MiB"); };
    const OutOfMemory::Numbers& numbers = error.numbers();
    const int64_t predicted = plan.prediction->peak_bytes[static_cast<size_t>(mesh.position.pipeline)];
    std::string advice = "a smaller --batch_size";
    advice += plan.options->recompute ? "" : ", --recompute";
    advice += plan.setup->schedule_name == "gpipe" ? ", --pipeline_schedule 1f1b" : "";
    advice += plan.options->dtype == DataType::kFloat32 ? ", --dtype bfloat16" : "";
    throw Error(
        {.where = ToString(mesh.device),
         .what = StrCat("out of memory: ", mib(numbers.wanted_bytes), " more wanted, ",
                        numbers.free_bytes < 0 ? "" : mib(numbers.free_bytes) + " free, ", mib(numbers.reserved_bytes),
                        " in use, ", mib(predicted), " predicted for this rank; try ", advice, " or more stages"),
         .kind = Error::Kind::kRuntime});
}

/// One rank of a run.
class RankRun {
 public:
    RankRun(const RunPlan& plan, const comm::Mesh& mesh)
        : plan_(plan), options_(*plan.options), setup_(*plan.setup), mesh_(mesh), loss_(MakeLoss(*plan.model)) {
        auto position = std::make_shared<nn::DropoutPosition>();
        position->seed = options_.seed;
        std::vector<std::shared_ptr<nn::Module>> chunks =
            BuildChunks(setup_, *plan.model, mesh.position.pipeline, position, mesh.device);
        for (const std::shared_ptr<nn::Module>& chunk : chunks) {
            if (plan.model->weights != nullptr) {
                LoadWeights(*plan.model->weights, *chunk);
            } else {
                chunk->Initialize(options_.seed);
            }
            chunk->To(options_.dtype);
        }
        pipeline_ = std::make_shared<PipelineParallel>(
            std::move(chunks), mesh,
            PipelineParallel::Options{.num_microbatches = setup_.shape.num_microbatches,
                                      .max_grad_norm = options_.grad_clip,
                                      .schedule = setup_.schedule,
                                      .rank_of_stage = setup_.shape.rank_of_stage,
                                      .dropout_position = position,
                                      .records_steps = options_.cuda_graph});
        CHECK_EQ(pipeline_->grad_reduction().num_elements(), plan.prediction->num_elements)
            << "parameters of all stages together";
    }

    void Run() {
        PrintStart();
        if (plan_.train != nullptr) {
            Train();
        }
        if (!options_.prompt.empty() || options_.sample_every > 0) {
            PrintText(options_.num_iteration);
        }
    }

 private:
    bool prints() const { return mesh_.rank == 0; }

    void PrintStart() const {
        if (!prints()) {
            return;
        }
        const int num_threads = omp_get_max_threads();
        const std::string hardware = HardwareName(mesh_.device);
        std::printf("%s: %lld parameters, %s, device %s%s, %d rank%s of %d thread%s\n", plan_.model->name.c_str(),
                    static_cast<long long>(plan_.prediction->num_elements), std::string(Name(options_.dtype)).c_str(),
                    ToString(mesh_.device).c_str(), hardware.empty() ? "" : (" " + hardware).c_str(),
                    mesh_.shape.num_ranks(), mesh_.shape.num_ranks() == 1 ? "" : "s", num_threads,
                    num_threads == 1 ? "" : "s");
        if (setup_.shape.num_ranks > 1) {
            std::printf("pipeline: %s, P=%d, M=%d, V=%d, layers of the stages %s\n", setup_.schedule_name.c_str(),
                        setup_.shape.num_ranks, setup_.shape.num_microbatches, setup_.shape.num_chunks,
                        nn::parallel::ToString(setup_.layout).c_str());
        }
        for (const std::string& note : plan_.model->notes) {
            std::printf("note: %s\n", note.c_str());
        }
    }

    void PrintBatch() const {
        const int64_t rows_per_step = setup_.rows_per_step(options_.batch_size);
        const int num_microbatches = setup_.shape.num_microbatches;
        std::printf("%lld tokens a step in %d micro-batch%s of %lld x %lld%s; %lld steps an epoch\n",
                    static_cast<long long>(rows_per_step * options_.sequence_length), num_microbatches,
                    num_microbatches == 1 ? "" : "es", static_cast<long long>(options_.batch_size),
                    static_cast<long long>(options_.sequence_length),
                    mesh_.shape.data == 1 ? "" : StrCat(" on each of ", mesh_.shape.data, " replicas").c_str(),
                    static_cast<long long>(plan_.train->num_rows() / rows_per_step));
        const std::string drop_note = plan_.train->DropNote(rows_per_step);
        if (!drop_note.empty()) {
            std::printf("note: %s\n", drop_note.c_str());
        }
    }

    void Train() {
        MetricsFile metrics_file(prints() ? options_.metrics_file : "");
        const std::shared_ptr<optimizers::Optimizer> optimizer = MakeOptimizer(options_, pipeline_->Parameters());
        const bool is_watched = isatty(STDOUT_FILENO) == 1;
        if (prints()) {
            PrintBatch();
        }
        for (int64_t step = 0; step < options_.num_iteration; ++step) {
            const StepMetrics metrics = TrainOneStep(step, optimizer);
            if (prints()) {
                std::printf("%s\n", StepLine(metrics, mesh_.shape, options_.num_iteration, is_watched).c_str());
                std::fflush(stdout);
                metrics_file.WriteStep(metrics);
            }
            CheckFinite(metrics);
            const bool is_last = step + 1 == options_.num_iteration;
            if (plan_.validation != nullptr &&
                (is_last || (options_.val_loss_every > 0 && (step + 1) % options_.val_loss_every == 0))) {
                const float val_loss = ValidationLoss();
                if (prints()) {
                    std::printf("step %4lld | val loss %.6f\n", static_cast<long long>(step + 1),
                                static_cast<double>(val_loss));
                    metrics_file.WriteValidation(step + 1, val_loss);
                }
            }
            if (options_.sample_every > 0 && (step + 1) % options_.sample_every == 0 && !is_last) {
                PrintText(step + 1);
            }
        }
        PrintMemory();
        if (!options_.timeline.empty()) {
            const nn::parallel::Timeline timeline = pipeline_->GatherTimeline();
            if (prints()) {
                WriteTimelineFiles(options_.timeline, setup_.shape, timeline);
            }
        }
    }

    StepMetrics TrainOneStep(int64_t step, const std::shared_ptr<optimizers::Optimizer>& optimizer) {
        const auto start = std::chrono::steady_clock::now();
        optimizer->set_lr(optimizers::LearningRate(options_.lr, step));
        const int64_t rows_per_step = setup_.rows_per_step(options_.batch_size);
        const int64_t rows_of_replica = rows_per_step / mesh_.shape.data;
        const Batch batch = ReadBatch(
            *plan_.train, plan_.train->FirstRowOfStep(step, rows_per_step) + mesh_.position.data * rows_of_replica,
            rows_of_replica, mesh_.device);
        const float loss = pipeline_->TrainStep(batch.inputs, batch.targets, optimizer, loss_, options_.dtype);
        const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
        const auto num_tokens = static_cast<double>(rows_per_step * options_.sequence_length);
        const std::vector<int64_t> peaks = PeakBytes();
        return {.step = step + 1,
                .loss = loss,
                .grad_norm = pipeline_->grad_norm(),
                .lr = optimizer->lr(),
                .ms = elapsed.count(),
                .tokens_per_s = num_tokens / elapsed.count() * 1e3,
                .peak_bytes = *std::max_element(peaks.begin(), peaks.end()),
                .mfu = Mfu(num_tokens / elapsed.count() * 1e3)};
    }

    double Mfu(double tokens_per_s) const {
        // Ranks may share GPUs: as many count as there are on all hosts, hosts being alike.
        const int num_hosts = setup_.process.num_processes / setup_.process.num_local;
        const int num_gpus = std::min(mesh_.shape.num_ranks(), num_hosts * NumCudaDevices());
        const double peak = PeakFlops(HardwareName(mesh_.device), options_.dtype) * num_gpus;
        return peak == 0.0 ? 0.0
                           : tokens_per_s *
                                 FlopsPerToken(plan_.prediction->num_elements, plan_.model->num_layers,
                                               plan_.model->num_channels, options_.sequence_length) /
                                 peak;
    }

    /// Over the first val_batches micro-batches, or as many as there are, shared out among the replicas.
    float ValidationLoss() {
        const int64_t num_batches =
            std::min<int64_t>(options_.val_batches, plan_.validation->num_rows() / options_.batch_size);
        const int64_t begin = num_batches * mesh_.position.data / mesh_.shape.data;
        const int64_t end = num_batches * (mesh_.position.data + 1) / mesh_.shape.data;
        const Batch batch = ReadBatch(*plan_.validation, begin * options_.batch_size,
                                      (end - begin) * options_.batch_size, mesh_.device);
        return pipeline_->EvalStep(batch.inputs, batch.targets, loss_, options_.dtype, static_cast<int>(end - begin));
    }

    /// step 0: before any training, just the text.
    void PrintText(int64_t step) {
        const data::ByteTokenizer tokenizer;
        // Without a prompt a text begins as a document does.
        const std::string prompt = options_.prompt.empty() ? "\n" : options_.prompt;
        const std::vector<int32_t> tokens =
            Generate(*pipeline_, mesh_, *plan_.model, tokenizer.Encode(prompt),
                     {.num_tokens = options_.text_length, .temperature = options_.temperature, .seed = options_.seed});
        if (!prints()) {
            return;
        }
        const std::string text = tokenizer.Decode(tokens);
        if (step > 0) {
            std::printf("step %4lld | text:\n", static_cast<long long>(step));
        }
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::printf("\n");
        std::fflush(stdout);
    }

    /// The most that each rank of the world has had at once.
    std::vector<int64_t> PeakBytes() const {
        const auto own =
            Tensor::FromVector(std::vector<int64_t>{mesh_.device.allocator->stats().peak_bytes}, {1}, mesh_.device);
        const auto all = Tensor::Empty({mesh_.world->size(), 1}, DataType::kInt64, mesh_.device);
        mesh_.world->AllGather(*own, *all);
        return all->ToVector<int64_t>();
    }

    void PrintMemory() const {
        const std::vector<int64_t> peaks = PeakBytes();
        if (!prints()) {
            return;
        }
        for (int rank = 0; rank < mesh_.shape.num_ranks(); ++rank) {
            const auto stage_rank = static_cast<size_t>(comm::PositionOf(rank, mesh_.shape).pipeline);
            const auto measured = static_cast<double>(peaks[static_cast<size_t>(rank)]);
            const auto predicted = static_cast<double>(plan_.prediction->peak_bytes[stage_rank]);
            std::printf("rank %d: peak memory %.1f MiB, predicted %.1f MiB (%+.1f %%)\n", rank, measured / 1048576.0,
                        predicted / 1048576.0, 100.0 * (predicted / measured - 1.0));
        }
    }

    const RunPlan& plan_;
    const ProgramOptions& options_;
    const PipelineSetup& setup_;
    const comm::Mesh& mesh_;
    std::shared_ptr<nn::Module> loss_;
    std::shared_ptr<PipelineParallel> pipeline_;
};

}  // namespace

void RunRank(const RunPlan& plan, const comm::Mesh& mesh) {
    try {
        RankRun(plan, mesh).Run();
    } catch (const OutOfMemory& error) {
        ThrowWithAdvice(error, plan, mesh);
    }
}

}  // namespace infini_train
