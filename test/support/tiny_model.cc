#include "test/support/tiny_model.h"

#include <vector>

#include "example/gpt2/net.h"
#include "example/llama3/net.h"
#include "infini_train/include/core/random.h"
#include "infini_train/include/nn/modules/loss.h"

namespace infini_train::test {
namespace {

constexpr uint64_t kValuesSeed = 5;

}  // namespace

std::shared_ptr<nn::Module> MakeLayers(const TinyModel& model, const nn::parallel::LayerRange& layers,
                                       const std::shared_ptr<nn::DropoutPosition>& position, const Device& device) {
    if (model.kind == TinyModelKind::kGpt2) {
        const gpt2::Gpt2Config config = {.block_size = model.block_size,
                                         .vocab_size = kTinyVocab,
                                         .padded_vocab_size = 16,
                                         .num_layers = model.num_layers,
                                         .num_heads = 2,
                                         .num_channels = model.num_channels,
                                         .dropout = model.dropout,
                                         .recompute = model.recompute};
        return std::make_shared<gpt2::Gpt2>(config, layers, position, device);
    }
    const llama3::Llama3Config config = {.block_size = model.block_size,
                                         .vocab_size = kTinyVocab,
                                         .num_layers = model.num_layers,
                                         .num_heads = 4,
                                         .num_kv_heads = 2,
                                         .num_channels = model.num_channels,
                                         .hidden_size = model.num_channels * 3 / 2,
                                         .tied_head = model.is_tied(),
                                         .dropout = model.dropout,
                                         .recompute = model.recompute};
    return std::make_shared<llama3::Llama3>(config, layers, position, device);
}

void SetValues(nn::Module& layers, DataType dtype) {
    layers.Initialize(kValuesSeed);
    layers.To(dtype);
}

std::shared_ptr<nn::Module> MakeWhole(const TinyModel& model, DataType dtype,
                                      const std::shared_ptr<nn::DropoutPosition>& position, const Device& device) {
    const std::shared_ptr<nn::Module> net =
        MakeLayers(model, {.begin = 0, .end = model.num_layers, .num_layers = model.num_layers}, position, device);
    SetValues(*net, dtype);
    return net;
}

std::shared_ptr<nn::Module> MakeTinyLoss() {
    return std::make_shared<nn::CrossEntropyLoss>(nn::CrossEntropyLoss::Options{.vocab_size = kTinyVocab});
}

TinyRows MakeRows(uint64_t seed, int64_t num_rows, int64_t length, const Device& device) {
    std::vector<int32_t> inputs;
    std::vector<int32_t> targets;
    for (int64_t row = 0; row < num_rows; ++row) {
        const RandomStream key = {.seed = seed, .stream = static_cast<uint64_t>(row)};
        const float ignored_share = row % 3 == 0 ? 0.6f : 0.2f;
        for (int64_t i = 0; i < length; ++i) {
            const auto at = static_cast<uint64_t>(3 * i);
            inputs.push_back(static_cast<int32_t>(Uniform(key, at) * float{kTinyVocab}));
            // The first target of a row is always there.
            const bool is_ignored = i > 0 && Uniform(key, at + 1) < ignored_share;
            targets.push_back(is_ignored ? -100 : static_cast<int32_t>(Uniform(key, at + 2) * float{kTinyVocab}));
        }
    }
    return {.inputs = Tensor::FromVector(inputs, {num_rows, length}, device),
            .targets = Tensor::FromVector(targets, {num_rows, length}, device)};
}

TinyRows SliceRows(const TinyRows& rows, int64_t begin, int64_t end) {
    return {.inputs = rows.inputs->Slice(begin, end), .targets = rows.targets->Slice(begin, end)};
}

}  // namespace infini_train::test
