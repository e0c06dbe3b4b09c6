// The two models on a device without values against the same models on the CPU: the same memory at every point, and
// the shapes that cross from one slice to the next.

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "example/gpt2/net.h"
#include "example/llama3/net.h"
#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/autograd/weight_grad_queue.h"
#include "infini_train/include/nn/modules/loss.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "infini_train/include/optimizer/adamw.h"
#include "infini_train/include/optimizer/grad_scale.h"
#include "infini_train/include/optimizer/sgd.h"

namespace infini_train::test {
namespace {

constexpr int64_t kVocab = 11;

gpt2::Gpt2Config SmallGpt2() {
    return {.block_size = 33,
            .vocab_size = kVocab,
            .padded_vocab_size = 13,
            .num_layers = 3,
            .num_heads = 2,
            .num_channels = 40};
}

llama3::Llama3Config SmallLlama() {
    return {.block_size = 33,
            .vocab_size = kVocab,
            .num_layers = 3,
            .num_heads = 4,
            .num_kv_heads = 2,
            .num_channels = 56,
            .hidden_size = 88,
            .tied_head = false};
}

template <typename Net, typename Config>
std::shared_ptr<nn::Module> MakeSlice(const Config& config, int begin, int end, const Device& device) {
    return std::make_shared<Net>(config,
                                 nn::parallel::LayerRange{.begin = begin, .end = end, .num_layers = config.num_layers},
                                 std::make_shared<nn::DropoutPosition>(), device);
}

/// A micro-batch of 31 tokens a row; zeros are tokens like any other.
std::shared_ptr<Tensor> Tokens(int64_t num_rows, const Device& device) {
    return Tensor::Zeros({num_rows, 31}, DataType::kInt32, device);
}

/// Live and peak bytes at points of a run.
class MemoryLog {
 public:
    explicit MemoryLog(const Device& device) : device_(device) {}
    void Note() {
        bytes_.push_back(device_.allocator->stats().live_bytes);
        bytes_.push_back(device_.allocator->stats().peak_bytes);
        device_.allocator->ResetPeak();
    }
    const std::vector<int64_t>& bytes() const { return bytes_; }

 private:
    Device device_;
    std::vector<int64_t> bytes_;
};

enum class OptimizerKind { kAdamW, kSgd };

struct RunOptions {
    DataType dtype = DataType::kFloat32;
    bool uses_weight_grad_queue = false;
    OptimizerKind optimizer = OptimizerKind::kAdamW;
};

std::unique_ptr<optimizers::Optimizer> MakeOptimizer(const TensorList& parameters, OptimizerKind kind) {
    if (kind == OptimizerKind::kAdamW) {
        return std::make_unique<optimizers::AdamW>(parameters, optimizers::AdamW::Options{.lr = 1e-3f});
    }
    return std::make_unique<optimizers::Sgd>(parameters, optimizers::Sgd::Options{.lr = 1e-3f, .momentum = 0.9f});
}

/// Two steps of two micro-batches, of three rows and of one.
template <typename Net, typename Config>
std::vector<int64_t> MemoryOfTraining(const Config& config, const RunOptions& options, const Device& device) {
    MemoryLog log(device);
    const std::shared_ptr<nn::Module> net = MakeSlice<Net>(config, 0, config.num_layers, device);
    net->Initialize(1);
    log.Note();
    net->To(options.dtype);
    const std::unique_ptr<optimizers::Optimizer> optimizer = MakeOptimizer(net->Parameters(), options.optimizer);
    log.Note();
    for (int step = 0; step < 2; ++step) {
        optimizer->ClearGrads();
        for (const nn::TiedParameters& tie : net->Ties()) {
            tie.alias->ClearGrad();
        }
        for (const int64_t num_rows : {3, 1}) {
            const TensorList logits = net->Forward({Tokens(num_rows, device)});
            TensorList loss =
                nn::CrossEntropyLoss({.vocab_size = kVocab}).Forward({logits[0], Tokens(num_rows, device)});
            log.Note();
            autograd::WeightGradQueue queue;
            autograd::Backward({loss[0]}, {nullptr}, options.uses_weight_grad_queue ? &queue : nullptr);
            log.Note();
            queue.Run();
            log.Note();
        }
        nn::ReduceTiedGrads(*net);
        const auto num_valid = Tensor::FromVector(std::vector<int64_t>{4 * 31}, {1}, device);
        optimizer->Step(*optimizers::ComputeGradScale(net->Parameters(), *num_valid, 1.0f).scale);
        log.Note();
    }
    return log.bytes();
}

template <typename Net, typename Config>
void ExpectTheMemoryOfTheCpu(const Config& config, const RunOptions& options) {
    const Device cpu = MakeCpuDevice();
    const Device meta = MakeMetaDevice();
    EXPECT_EQ(MemoryOfTraining<Net>(config, options, meta), MemoryOfTraining<Net>(config, options, cpu))
        << Name(options.dtype) << (config.recompute ? ", recompute" : "")
        << (config.dropout != 0.0f ? ", dropout" : "");
    EXPECT_EQ(meta.allocator->stats().live_bytes, 0);
    EXPECT_EQ(meta.allocator->stats().reserved_bytes, 0);
}

template <typename Net, typename Config>
void ExpectTheMemoryOfTheCpuInEveryWay(const Config& plain) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const bool recompute : {false, true}) {
            for (const float dropout : {0.0f, 0.3f}) {
                Config config = plain;
                config.recompute = recompute;
                config.dropout = dropout;
                ExpectTheMemoryOfTheCpu<Net>(config, {.dtype = dtype});
            }
        }
    }
    ExpectTheMemoryOfTheCpu<Net>(plain, {.dtype = DataType::kBFloat16, .uses_weight_grad_queue = true});
    ExpectTheMemoryOfTheCpu<Net>(plain, {.optimizer = OptimizerKind::kSgd});
}

TEST(MetaModel, TakesTheMemoryOfTheCpuToTrainAGpt2) {
    ExpectTheMemoryOfTheCpuInEveryWay<gpt2::Gpt2>(SmallGpt2());
}

TEST(MetaModel, TakesTheMemoryOfTheCpuToTrainALlama) {
    ExpectTheMemoryOfTheCpuInEveryWay<llama3::Llama3>(SmallLlama());
    llama3::Llama3Config tied = SmallLlama();
    tied.tied_head = true;
    ExpectTheMemoryOfTheCpu<llama3::Llama3>(tied, {});
}

/// Shape and dtype of what a slice passes on, from meta input and weights on the CPU.
template <typename Net, typename Config>
void ExpectBoundaries(const Config& config, int64_t num_columns) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const Device cpu = MakeCpuDevice();
        const Device meta = MakeMetaDevice();
        TensorList x = {Tokens(2, meta)};
        for (int layer = 0; layer < 3; ++layer) {
            const std::shared_ptr<nn::Module> slice = MakeSlice<Net>(config, layer, layer + 1, cpu);
            slice->To(dtype);
            const autograd::NoGradGuard no_grad;
            cpu.allocator->ResetPeak();
            const int64_t live_bytes = cpu.allocator->stats().live_bytes;
            x = slice->Forward(x);
            EXPECT_EQ(cpu.allocator->stats().peak_bytes, live_bytes) << "computed on the CPU";
            ASSERT_EQ(x.size(), 1u);
            EXPECT_EQ(x[0]->shape(), (Shape{2, 31, layer < 2 ? config.num_channels : num_columns}));
            EXPECT_EQ(x[0]->dtype(), dtype);
            EXPECT_TRUE(x[0]->device() == meta);
        }
    }
}

TEST(MetaModel, TellsWhatCrossesEachBoundaryFromTheWeightsThatAreThere) {
    ExpectBoundaries<gpt2::Gpt2>(SmallGpt2(), 13);
    ExpectBoundaries<llama3::Llama3>(SmallLlama(), kVocab);
}

/// Bytes that a forward pass keeps for its backward, with the weights on one device and the input on another.
template <typename Net, typename Config>
int64_t SavedBytes(const Config& config, const Device& weights, const Device& input) {
    const std::shared_ptr<nn::Module> slice = MakeSlice<Net>(config, 1, 2, weights);
    slice->Initialize(1);
    const Shape shape = {2, 31, config.num_channels};
    const auto x = Tensor::Zeros(shape, DataType::kFloat32, input);
    x->set_requires_grad(true);
    const int64_t before = input.allocator->stats().live_bytes;
    const TensorList y = slice->Forward({x});
    return input.allocator->stats().live_bytes - before;
}

TEST(MetaModel, SavesForTheBackwardPassWhatTheCpuDoes) {
    const Device cpu = MakeCpuDevice();
    const Device meta = MakeMetaDevice();
    for (const bool recompute : {false, true}) {
        gpt2::Gpt2Config gpt2 = SmallGpt2();
        gpt2.recompute = recompute;
        EXPECT_EQ(SavedBytes<gpt2::Gpt2>(gpt2, cpu, meta), SavedBytes<gpt2::Gpt2>(gpt2, cpu, cpu));
        llama3::Llama3Config llama = SmallLlama();
        llama.recompute = recompute;
        EXPECT_EQ(SavedBytes<llama3::Llama3>(llama, cpu, meta), SavedBytes<llama3::Llama3>(llama, cpu, cpu));
    }
}

TEST(MetaModel, HasRoomForAModelThatThisMachineHasNot) {
    const Device meta = MakeMetaDevice();
    const std::shared_ptr<nn::Module> net = MakeSlice<llama3::Llama3>(llama3::NamedConfig("8b"), 0, 32, meta);
    const int64_t num_parameters = 8030261248;
    const int64_t num_angles = 8192 * 128;
    EXPECT_EQ(meta.allocator->stats().live_bytes, 4 * (num_parameters + num_angles));
    EXPECT_EQ(meta.allocator->stats().num_system_requests, 0);
}

TEST(MetaModelDeathTest, RefusesABackwardPassIntoWeightsWithValues) {
    const std::shared_ptr<nn::Module> slice = MakeSlice<gpt2::Gpt2>(SmallGpt2(), 2, 3, MakeCpuDevice());
    const auto x = Tensor::Zeros({1, 31, 40}, DataType::kFloat32, MakeMetaDevice());
    const TensorList y = slice->Forward({x});
    EXPECT_DEATH(autograd::Backward({y[0]}, {Tensor::Zeros(y[0]->shape(), DataType::kFloat32, y[0]->device())}),
                 "linear_backward_weight: on a meta device");
}

}  // namespace
}  // namespace infini_train::test
