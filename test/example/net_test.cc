// The two models as modules: a whole model against its slices, both against themselves in other ways of computing.

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "example/gpt2/net.h"
#include "example/llama3/net.h"
#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/nn/modules/loss.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"
#include "infini_train/include/nn/state_dict.h"

namespace infini_train {
namespace {

gpt2::Gpt2Config SmallGpt2() {
    return {.block_size = 16,
            .vocab_size = 11,
            .padded_vocab_size = 13,
            .num_layers = 3,
            .num_heads = 2,
            .num_channels = 8};
}

llama3::Llama3Config SmallLlama() {
    return {.block_size = 16,
            .vocab_size = 11,
            .num_layers = 3,
            .num_heads = 4,
            .num_kv_heads = 2,
            .num_channels = 16,
            .hidden_size = 24,
            .tied_head = false};
}

template <typename Net, typename Config>
std::shared_ptr<Net> Make(const Config& config, int begin, int end, const Device& device,
                          const std::shared_ptr<nn::DropoutPosition>& position) {
    auto net = std::make_shared<Net>(
        config, nn::parallel::LayerRange{.begin = begin, .end = end, .num_layers = config.num_layers}, position,
        device);
    net->Initialize(9);
    return net;
}

std::shared_ptr<Tensor> Ids(const Device& device) {
    return Tensor::FromVector(std::vector<int32_t>{1, 2, 3, 4, 10, 0, 5, 5, 7, 8}, {2, 5}, device);
}

std::shared_ptr<Tensor> LossOf(const std::shared_ptr<Tensor>& logits, const Device& device) {
    const auto targets = Tensor::FromVector(std::vector<int32_t>{2, 3, 4, 10, 0, 5, -100, 7, 8, 9}, {2, 5}, device);
    return nn::CrossEntropyLoss({.vocab_size = 11}).Forward({logits, targets})[0];
}

using State = std::map<std::string, std::shared_ptr<Tensor>>;

/// Counts the parameters of the slice by name, after a check that they start with the whole's values. A tied head far
/// from its embedding is a copy of it, with its name.
void ExpectToStartAlike(const State& whole, const State& slice, std::map<std::string, int>* counts) {
    for (const auto& [name, values] : slice) {
        ASSERT_TRUE(whole.contains(name)) << name;
        EXPECT_EQ(values->ToVector<float>(), whole.at(name)->ToVector<float>()) << name;
        ++(*counts)[name];
    }
}

template <typename Net, typename Config>
void ExpectSlicesToBeTheWhole(const Config& config, bool is_tied) {
    const Device device = MakeCpuDevice();
    const auto position = std::make_shared<nn::DropoutPosition>();
    const std::shared_ptr<nn::Module> whole = Make<Net>(config, 0, 3, device, position);
    const std::shared_ptr<nn::Module> first = Make<Net>(config, 0, 1, device, position);
    const std::shared_ptr<nn::Module> middle = Make<Net>(config, 1, 2, device, position);
    const std::shared_ptr<nn::Module> last = Make<Net>(config, 2, 3, device, position);
    const State whole_state = nn::StateDict(*whole);
    std::map<std::string, int> counts;
    for (const std::shared_ptr<nn::Module>& slice : {first, middle, last}) {
        ExpectToStartAlike(whole_state, nn::StateDict(*slice), &counts);
    }
    EXPECT_EQ(counts.size(), whole_state.size());
    for (const auto& [name, count] : counts) {
        EXPECT_EQ(count, is_tied && name == "wte.weight" ? 2 : 1) << name;
    }
    const std::vector<std::string> shared =
        is_tied ? std::vector<std::string>{"wte.weight"} : std::vector<std::string>{};
    EXPECT_EQ(first->SharedNames(), shared);
    EXPECT_EQ(last->SharedNames(), shared);
    EXPECT_EQ(middle->SharedNames(), std::vector<std::string>{});
    EXPECT_EQ(whole->SharedNames(), std::vector<std::string>{});
    const std::shared_ptr<Tensor> loss = LossOf(whole->Forward({Ids(device)})[0], device);
    const std::shared_ptr<Tensor> sliced =
        LossOf(last->Forward(middle->Forward(first->Forward({Ids(device)})))[0], device);
    EXPECT_EQ(loss->ToVector<float>(), sliced->ToVector<float>());
    autograd::Backward({loss}, {nullptr});
    autograd::Backward({sliced}, {nullptr});
    for (const nn::NamedParameter& parameter : middle->NamedParameters()) {
        for (const nn::NamedParameter& other : whole->NamedParameters()) {
            if (other.name == parameter.name) {
                EXPECT_EQ(other.tensor->grad()->ToVector<float>(), parameter.tensor->grad()->ToVector<float>())
                    << other.name;
            }
        }
    }
}

TEST(Net, SlicesOfAModelAreTheWhole) {
    ExpectSlicesToBeTheWhole<gpt2::Gpt2>(SmallGpt2(), /*is_tied=*/true);
    llama3::Llama3Config llama = SmallLlama();
    ExpectSlicesToBeTheWhole<llama3::Llama3>(llama, /*is_tied=*/false);
    llama.tied_head = true;
    ExpectSlicesToBeTheWhole<llama3::Llama3>(llama, /*is_tied=*/true);
}

TEST(Net, PaddingRowsOfATiedEmbeddingStartAtZero) {
    const auto net = Make<gpt2::Gpt2>(SmallGpt2(), 0, 3, MakeCpuDevice(), std::make_shared<nn::DropoutPosition>());
    const std::vector<float> table = nn::StateDict(*net).at("wte.weight")->ToVector<float>();
    EXPECT_NE(table[10 * 8], 0.0f);
    EXPECT_EQ(std::vector<float>(table.begin() + 11 * 8, table.end()), std::vector<float>(2 * 8, 0.0f));
}

template <typename Net, typename Config>
std::vector<std::vector<float>> GradsOf(const Config& config, DataType dtype) {
    const Device device = MakeCpuDevice();
    const auto position = std::make_shared<nn::DropoutPosition>();
    const auto net = Make<Net>(config, 0, 3, device, position);
    net->To(dtype);
    const std::shared_ptr<Tensor> loss = LossOf(net->Forward({Ids(device)})[0], device);
    position->step = 77;  // another micro-batch comes before the backward
    autograd::Backward({loss}, {nullptr});
    nn::ReduceTiedGrads(*net);
    std::vector<std::vector<float>> grads = {loss->ToVector<float>()};
    for (const std::shared_ptr<Tensor>& parameter : net->Parameters()) {
        grads.push_back(parameter->grad()->ToVector<float>());
    }
    return grads;
}

TEST(Net, RecomputeGivesTheSameBits) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        gpt2::Gpt2Config gpt2 = SmallGpt2();
        gpt2.dropout = 0.3f;
        gpt2::Gpt2Config gpt2_recompute = gpt2;
        gpt2_recompute.recompute = true;
        EXPECT_EQ(GradsOf<gpt2::Gpt2>(gpt2, dtype), GradsOf<gpt2::Gpt2>(gpt2_recompute, dtype));
        llama3::Llama3Config llama = SmallLlama();
        llama3::Llama3Config llama_recompute = llama;
        llama_recompute.recompute = true;
        EXPECT_EQ(GradsOf<llama3::Llama3>(llama, dtype), GradsOf<llama3::Llama3>(llama_recompute, dtype));
    }
}

TEST(Net, Bfloat16IsNearFloat32) {
    const auto wide = GradsOf<llama3::Llama3>(SmallLlama(), DataType::kFloat32);
    const auto narrow = GradsOf<llama3::Llama3>(SmallLlama(), DataType::kBFloat16);
    EXPECT_NEAR(wide[0][0], narrow[0][0], 0.02f * wide[0][0]);
    EXPECT_NE(wide[0][0], narrow[0][0]);
}

TEST(Net, DropoutChangesTheLossInTrainingOnly) {
    const Device device = MakeCpuDevice();
    gpt2::Gpt2Config config = SmallGpt2();
    const auto plain_position = std::make_shared<nn::DropoutPosition>();
    const float plain =
        LossOf(Make<gpt2::Gpt2>(config, 0, 3, device, plain_position)->Forward({Ids(device)})[0], device)
            ->ToVector<float>()[0];
    config.dropout = 0.5f;
    const auto position = std::make_shared<nn::DropoutPosition>();
    const auto net = Make<gpt2::Gpt2>(config, 0, 3, device, position);
    EXPECT_NE(LossOf(net->Forward({Ids(device)})[0], device)->ToVector<float>()[0], plain);
    position->training = false;
    EXPECT_EQ(LossOf(net->Forward({Ids(device)})[0], device)->ToVector<float>()[0], plain);
}

// A recorded step reads them where they were when it was recorded.
TEST(Gpt2, KeepsThePositionsOfAShapeWhenAnotherOneCameInBetween) {
    const Device device = MakeCpuDevice();
    const auto net = Make<gpt2::Gpt2>(SmallGpt2(), 0, 3, device, std::make_shared<nn::DropoutPosition>());
    const autograd::NoGradGuard no_grad;
    const auto live_bytes_after = [&](const Shape& shape) {
        net->Forward({Tensor::Zeros(shape, DataType::kInt32, device)});
        return device.allocator->stats().live_bytes;
    };
    live_bytes_after({16, 16});
    const int64_t both = live_bytes_after({1, 5});
    EXPECT_EQ(live_bytes_after({16, 16}), both);
    EXPECT_EQ(live_bytes_after({1, 5}), both);
}

}  // namespace
}  // namespace infini_train
