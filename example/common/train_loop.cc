#include "example/common/train_loop.h"

#include <omp.h>

#include <cstdio>
#include <string>
#include <vector>

#include "glog/logging.h"

#include "example/common/load_weights.h"
#include "example/common/sample_text.h"
#include "example/common/trainer.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"

namespace infini_train {
namespace {

using nn::parallel::PipelineParallel;

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
        : plan_(plan), options_(*plan.options), setup_(*plan.setup), mesh_(mesh) {
        auto position = std::make_shared<nn::DropoutPosition>();
        position->seed = options_.seed;
        pipeline_ = std::make_shared<PipelineParallel>(
            LoadChunks(options_, setup_, *plan.model, position, mesh), mesh,
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
            Trainer(plan_, mesh_, pipeline_).Run();
        } else if (plan_.tokenizer != nullptr) {
            const std::string text = SampleText(plan_, mesh_, *pipeline_);
            if (prints()) {
                std::printf("%s\n", text.c_str());
            }
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
        for (const std::vector<std::string>* notes : {&plan_.model->notes, &options_.notes}) {
            for (const std::string& note : *notes) {
                std::printf("note: %s\n", note.c_str());
            }
        }
    }

    const RunPlan& plan_;
    const ProgramOptions& options_;
    const PipelineSetup& setup_;
    const comm::Mesh& mesh_;
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
