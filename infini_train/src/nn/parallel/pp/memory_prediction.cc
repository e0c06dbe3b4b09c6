#include "infini_train/include/nn/parallel/pp/memory_prediction.h"

#include <string>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/parallel/pp/grad_reduction.h"
#include "infini_train/include/nn/parallel/pp/passes.h"
#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"
#include "infini_train/src/nn/parallel/pp/inventory.h"
#include "infini_train/src/nn/parallel/pp/stage_inference.h"

// A rank is run alone: its messages go nowhere, and what it receives is memory without values.

namespace infini_train::nn::parallel {
namespace {

class SilentSender : public comm::Sender {
 public:
    void Send(std::shared_ptr<Tensor> /*tensor*/, const comm::MessageTag& /*tag*/) override {}
};

class EmptyReceive : public comm::PendingReceive {
 public:
    explicit EmptyReceive(std::shared_ptr<Tensor> tensor) : tensor_(std::move(tensor)) {}
    std::shared_ptr<Tensor> Wait() override { return std::move(tensor_); }

 private:
    std::shared_ptr<Tensor> tensor_;
};

class EmptyReceiver : public comm::Receiver {
 public:
    explicit EmptyReceiver(Device device) : device_(std::move(device)) {}
    std::unique_ptr<comm::PendingReceive> Post(const comm::MessageSpec& expected) override {
        return std::make_unique<EmptyReceive>(Tensor::Empty(expected.shape, expected.dtype, device_));
    }

 private:
    Device device_;
};

/// What the imagined ranks of a pipeline would tell each other: their inventories.
using Texts = std::shared_ptr<std::vector<std::string>>;

/// A group whose other ranks are imagined. Values do not exist, so that no collective has anything to do.
class ImaginedGroup : public comm::ProcessGroup {
 public:
    ImaginedGroup(int rank, int size, Device device, Texts texts)
        : ProcessGroup(rank, Ranks(size)), device_(std::move(device)), texts_(std::move(texts)) {}

    void AllReduceSum(const TensorList& /*tensors*/) override {}
    void AllGather(const Tensor& /*x*/, Tensor& /*gathered*/) override {}
    void Broadcast(Tensor& /*x*/, int /*root*/) override {}
    void Barrier() override {}
    std::vector<std::string> ExchangeText(const std::string& /*text*/) override { return *texts_; }
    std::shared_ptr<comm::ProcessGroup> Split(int /*color*/) override {
        return std::make_shared<ImaginedGroup>(rank(), size(), device_, texts_);
    }
    comm::LinkEnds OpenLinks(const std::vector<comm::Link>& links) override {
        comm::LinkEnds ends;
        for (const comm::Link& link : links) {
            if (link.from == rank()) {
                ends.senders[{link.to, link.direction}] = std::make_unique<SilentSender>();
            }
            if (link.to == rank()) {
                ends.receivers[{link.from, link.direction}] = std::make_unique<EmptyReceiver>(device_);
            }
        }
        return ends;
    }
    void ThrowIfFailed() override {}

 private:
    static std::vector<int> Ranks(int size) {
        std::vector<int> ranks;
        for (int rank = 0; rank < size; ++rank) {
            ranks.push_back(rank);
        }
        return ranks;
    }

    Device device_;
    Texts texts_;
};

/// One rank on a device without memory.
struct ImaginedRank {
    Device device = {};
    std::shared_ptr<DropoutPosition> position = nullptr;
    comm::Mesh mesh = {};
    std::unique_ptr<PipelineStage> stage = nullptr;
};

ImaginedRank Imagine(const MemoryQuery& query, int rank, const Texts& texts) {
    ImaginedRank imagined = {.device = MakeMetaDevice(), .position = std::make_shared<DropoutPosition>()};
    imagined.mesh = {.shape = {.pipeline = query.shape.num_ranks},
                     .position = {.pipeline = rank},
                     .rank = rank,
                     .device = imagined.device,
                     .data = std::make_shared<ImaginedGroup>(0, 1, imagined.device, nullptr),
                     .pipeline = std::make_shared<ImaginedGroup>(rank, query.shape.num_ranks, imagined.device, texts)};
    std::vector<std::shared_ptr<Module>> chunks = query.build_chunks(rank, imagined.position, imagined.device);
    for (const std::shared_ptr<Module>& chunk : chunks) {
        chunk->To(query.dtype);
    }
    imagined.stage = std::make_unique<PipelineStage>(PipelineStage::Options{.chunks = std::move(chunks),
                                                                            .rank_of_stage = query.shape.rank_of_stage,
                                                                            .dropout_position = imagined.position},
                                                     imagined.mesh);
    texts->push_back(InventoryText(*imagined.stage));
    return imagined;
}

Shape TimesRows(Shape shape, int64_t factor) {
    CHECK(!shape.empty());
    shape[0] *= factor;
    return shape;
}

StepData ImaginedStep(const MemoryQuery& query, const std::vector<BoundarySpec>& boundaries, const Device& device) {
    const int64_t num_microbatches = query.shape.num_microbatches;
    const auto input = Tensor::Empty(TimesRows(query.input.shape, num_microbatches), query.input.dtype, device);
    const auto target = Tensor::Empty(TimesRows(query.target.shape, num_microbatches), query.target.dtype, device);
    StepData data = {.loss_fn = query.loss_fn, .boundaries = boundaries};
    for (int64_t m = 0; m < num_microbatches; ++m) {
        data.inputs.push_back(input->Slice(m * query.input.shape[0], (m + 1) * query.input.shape[0]));
        data.targets.push_back(target->Slice(m * query.target.shape[0], (m + 1) * query.target.shape[0]));
    }
    return data;
}

int64_t ParameterBytes(const PipelineStage& stage) {
    int64_t bytes = 0;
    for (const std::shared_ptr<Module>& chunk : stage.chunks()) {
        for (const std::shared_ptr<Tensor>& parameter : chunk->Parameters()) {
            bytes += static_cast<int64_t>(parameter->size_bytes());
            bytes += parameter->master() == nullptr ? 0 : static_cast<int64_t>(parameter->master()->size_bytes());
        }
    }
    return bytes;
}

/// What each stage makes of a micro-batch, from the first to the last.
PlanSizes InferSizes(const MemoryQuery& query, const std::vector<ImaginedRank>& ranks) {
    PlanSizes sizes;
    BoundarySpec passed = query.input;
    for (int stage = 0; stage < query.shape.num_stages(); ++stage) {
        PipelineStage& holder = *ranks[static_cast<size_t>(query.shape.RankOf(stage))].stage;
        const StageSpec spec =
            InferStage(holder, query.shape.ChunkOf(stage), passed, query.loss_fn.get(), query.target);
        passed = spec.output;
        sizes.activation_bytes.push_back(spec.activation_bytes);
        sizes.sent.push_back(spec.output);
    }
    sizes.sent.pop_back();  // the last stage sends nothing on
    sizes.received = sizes.sent;
    return sizes;
}

int64_t PeakBytesOfTraining(const MemoryQuery& query, ImaginedRank& rank, GradReduction& reduction,
                            const ActionList& plan, const std::vector<BoundarySpec>& boundaries) {
    TensorList parameters;
    for (const std::shared_ptr<Module>& chunk : rank.stage->chunks()) {
        for (const std::shared_ptr<Tensor>& parameter : chunk->Parameters()) {
            parameters.push_back(parameter);
        }
    }
    const std::shared_ptr<optimizers::Optimizer> optimizer = query.make_optimizer(parameters);
    for (int step = 0; step < 2; ++step) {
        const StepData data = ImaginedStep(query, boundaries, rank.device);
        reduction.Clear();
        const StepOutput output = query.schedule->StepMicrobatches(*rank.stage, plan, data);
        const kernels::LossMean loss = reduction.ReduceLoss(output.loss_sums, output.loss_counts);
        reduction.ReduceTied();
        optimizer->Step(*reduction.Scale(*optimizer, *loss.num_valid, 0.0f).scale);
    }
    return rank.device.allocator->stats().peak_bytes;
}

}  // namespace

MemoryPrediction PredictMemory(const MemoryQuery& query) {
    std::vector<ActionList> plans = query.schedule->PlanAllRanks(query.shape);
    PlaceReceives(query.shape, &plans);
    AllocateSlots(query.shape, &plans);
    std::vector<ImaginedRank> ranks;
    const auto texts = std::make_shared<std::vector<std::string>>();
    MemoryPrediction prediction;
    for (int rank = 0; rank < query.shape.num_ranks; ++rank) {
        ranks.push_back(Imagine(query, rank, texts));
        prediction.parameter_bytes.push_back(ParameterBytes(*ranks.back().stage));
    }
    const PlanSizes sizes = InferSizes(query, ranks);
    prediction.plan = CheckPlans(query.shape, plans, PlanKind::kTraining, sizes);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        GradReduction reduction(*ranks[rank].stage, ranks[rank].mesh);
        prediction.num_elements = reduction.num_elements();
        prediction.peak_bytes.push_back(PeakBytesOfTraining(query, ranks[rank], reduction, plans[rank], sizes.sent));
    }
    return prediction;
}

}  // namespace infini_train::nn::parallel
