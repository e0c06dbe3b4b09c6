#include "example/gpt2/net.h"

#include <cmath>
#include <utility>
#include <vector>

#include "infini_train/include/autograd/add.h"
#include "infini_train/include/autograd/function.h"
#include "infini_train/include/nn/modules/attention.h"
#include "infini_train/include/nn/modules/mlp.h"
#include "infini_train/include/nn/modules/transformer_block.h"

namespace infini_train::gpt2 {
namespace {

constexpr float kNormEps = 1e-5f;
constexpr float kInitStddev = 0.02f;

std::shared_ptr<nn::Module> MakeBlock(const Gpt2Config& config, int layer, const std::shared_ptr<nn::KvCache>& kv_cache,
                                      const std::shared_ptr<nn::DropoutPosition>& dropout_position,
                                      const Device& device) {
    // The residual stream sums 2 num_layers branches: their last projections start smaller by the root of that.
    const float projection_stddev = kInitStddev / std::sqrt(2.0f * static_cast<float>(config.num_layers));
    const nn::LayerNorm::Options norm = {.dim = config.num_channels, .eps = kNormEps};
    // Dropout 0 is after the embeddings, 1 + 2 i and 2 + 2 i are those of layer i.
    const auto dropout = [&](int branch) -> std::shared_ptr<nn::Module> {
        if (config.dropout == 0.0f) {
            return nullptr;
        }
        return std::make_shared<nn::Dropout>(nn::Dropout::Options{
            .p = config.dropout, .layer = static_cast<uint64_t>(2 * layer + branch), .position = dropout_position});
    };
    return std::make_shared<nn::TransformerBlock>(nn::TransformerBlock::Options{
        .ln_1 = std::make_shared<nn::LayerNorm>(norm, device),
        .attn = std::make_shared<nn::CausalSelfAttention>(
            nn::CausalSelfAttention::Options{.dim = config.num_channels,
                                             .num_heads = config.num_heads,
                                             .num_kv_heads = config.num_heads,
                                             .kv_cache = kv_cache,
                                             .deterministic = config.deterministic_attention,
                                             .init_stddev = kInitStddev,
                                             .projection_init_stddev = projection_stddev},
            device),
        .ln_2 = std::make_shared<nn::LayerNorm>(norm, device),
        .mlp = std::make_shared<nn::Mlp>(nn::Mlp::Options{.dim = config.num_channels,
                                                          .hidden_dim = 4 * config.num_channels,
                                                          .init_stddev = kInitStddev,
                                                          .projection_init_stddev = projection_stddev},
                                         device),
        .attn_dropout = dropout(1),
        .mlp_dropout = dropout(2),
        .dropout_position = dropout_position,
        .recompute = config.recompute,
    });
}

}  // namespace

Gpt2::Gpt2(const Gpt2Config& config, const nn::parallel::LayerRange& layers,
           std::shared_ptr<nn::DropoutPosition> dropout_position, const Device& device)
    : device_(device) {
    if (layers.is_first()) {
        wte_ = std::make_shared<nn::Embedding>(nn::Embedding::Options{.num_embeddings = config.padded_vocab_size,
                                                                      .num_used = config.vocab_size,
                                                                      .dim = config.num_channels,
                                                                      .init_stddev = kInitStddev},
                                               device);
        wpe_ = std::make_shared<nn::Embedding>(nn::Embedding::Options{.num_embeddings = config.block_size,
                                                                      .num_used = config.block_size,
                                                                      .dim = config.num_channels,
                                                                      .init_stddev = kInitStddev},
                                               device);
        RegisterModule("wte", wte_);
        RegisterModule("wpe", wpe_);
        if (config.dropout != 0.0f) {
            embedding_dropout_ = std::make_shared<nn::Dropout>(
                nn::Dropout::Options{.p = config.dropout, .layer = 0, .position = dropout_position});
        }
    }
    std::vector<std::shared_ptr<nn::Module>> blocks;
    for (int layer = layers.begin; layer < layers.end; ++layer) {
        blocks.push_back(MakeBlock(config, layer, kv_cache(), dropout_position, device));
    }
    h_ = std::make_shared<nn::Sequential>(std::move(blocks), layers.begin);
    RegisterModule("h", h_);
    if (layers.is_last()) {
        ln_f_ = std::make_shared<nn::LayerNorm>(nn::LayerNorm::Options{.dim = config.num_channels, .eps = kNormEps},
                                                device);
        lm_head_ = std::make_shared<nn::Linear>(nn::Linear::Options{.in_features = config.num_channels,
                                                                    .out_features = config.padded_vocab_size,
                                                                    .bias = false,
                                                                    .init_stddev = kInitStddev,
                                                                    .num_used = config.vocab_size},
                                                device);
        RegisterModule("ln_f", ln_f_);
        if (wte_ != nullptr) {
            RegisterModule("lm_head", lm_head_);
            Tie(wte_->weight_slot(), lm_head_->weight_slot());
        } else {
            // Far from the embedding the head is its copy: the same name, hence the same values.
            RegisterModule("wte", lm_head_);
            ShareAcrossStages(lm_head_->weight_slot());
        }
    } else if (wte_ != nullptr) {
        ShareAcrossStages(wte_->weight_slot());
    }
}

std::shared_ptr<Tensor> Gpt2::PositionIds(const Tensor& ids) {
    const bool is_cached = kv_cache()->Serves(ids);
    const int64_t start = is_cached ? kv_cache()->length() : 0;
    // An imagined micro-batch is on a device of its own; a position of a generation comes once.
    const bool is_kept = ids.device().allocator == device_.allocator && !is_cached;
    if (const auto found = position_ids_.find(ids.shape()); is_kept && found != position_ids_.end()) {
        return found->second;
    }
    std::vector<int32_t> positions(static_cast<size_t>(ids.num_elements()));
    for (size_t i = 0; i < positions.size(); ++i) {
        positions[i] = static_cast<int32_t>(start + static_cast<int64_t>(i) % ids.dim(-1));
    }
    std::shared_ptr<Tensor> position_ids = Tensor::FromVector(positions, ids.shape(), ids.device());
    if (is_kept) {
        position_ids_[ids.shape()] = position_ids;
    }
    return position_ids;
}

std::shared_ptr<Tensor> Gpt2::Embed(const Tensor& ids) {
    const std::shared_ptr<Tensor> x =
        autograd::Add(wte_->Forward({ids.Detach()})[0], wpe_->Forward({PositionIds(ids)})[0]);
    return embedding_dropout_ == nullptr ? x : embedding_dropout_->Forward({x})[0];
}

TensorList Gpt2::Forward(const TensorList& inputs) {
    auto [x] = autograd::Unpack<1>(inputs);
    if (wte_ != nullptr) {
        x = Embed(*x);
    }
    x = h_->Forward({x})[0];
    if (kv_cache()->Serves(*x)) {
        kv_cache()->Advance(x->dim(1));
        x = ln_f_ == nullptr ? x : nn::LastPositions(*x);
    }
    return ln_f_ == nullptr ? TensorList{x} : lm_head_->Forward(ln_f_->Forward({x}));
}

}  // namespace infini_train::gpt2
