#include "example/llama3/net.h"

#include <cmath>
#include <utility>
#include <vector>

#include "infini_train/include/nn/modules/attention.h"
#include "infini_train/include/nn/modules/mlp.h"
#include "infini_train/include/nn/modules/transformer_block.h"

namespace infini_train::llama3 {
namespace {

constexpr float kInitStddev = 0.02f;

std::shared_ptr<nn::Module> MakeBlock(const Llama3Config& config, int layer,
                                      const std::shared_ptr<Tensor>& rotary_angles,
                                      const std::shared_ptr<nn::KvCache>& kv_cache,
                                      const std::shared_ptr<nn::DropoutPosition>& dropout_position,
                                      const Device& device) {
    // The residual stream sums 2 num_layers branches: their last projections start smaller by the root of that.
    const float projection_stddev = kInitStddev / std::sqrt(2.0f * static_cast<float>(config.num_layers));
    const nn::RmsNorm::Options norm = {.dim = config.num_channels, .eps = config.norm_eps};
    // Dropout 0 is after the embedding, 1 + 2 i and 2 + 2 i are those of layer i.
    const auto dropout = [&](int branch) -> std::shared_ptr<nn::Module> {
        if (config.dropout == 0.0f) {
            return nullptr;
        }
        return std::make_shared<nn::Dropout>(nn::Dropout::Options{
            .p = config.dropout, .layer = static_cast<uint64_t>(2 * layer + branch), .position = dropout_position});
    };
    return std::make_shared<nn::TransformerBlock>(nn::TransformerBlock::Options{
        .ln_1 = std::make_shared<nn::RmsNorm>(norm, device),
        .attn = std::make_shared<nn::CausalSelfAttention>(
            nn::CausalSelfAttention::Options{.dim = config.num_channels,
                                             .num_heads = config.num_heads,
                                             .num_kv_heads = config.num_kv_heads,
                                             .bias = false,
                                             .rotary_angles = rotary_angles,
                                             .kv_cache = kv_cache,
                                             .deterministic = config.deterministic_attention,
                                             .init_stddev = kInitStddev,
                                             .projection_init_stddev = projection_stddev},
            device),
        .ln_2 = std::make_shared<nn::RmsNorm>(norm, device),
        .mlp = std::make_shared<nn::Mlp>(nn::Mlp::Options{.dim = config.num_channels,
                                                          .hidden_dim = config.hidden_size,
                                                          .activation = nn::Mlp::Activation::kSwiglu,
                                                          .bias = false,
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

Llama3::Llama3(const Llama3Config& config, const nn::parallel::LayerRange& layers,
               std::shared_ptr<nn::DropoutPosition> dropout_position, const Device& device) {
    if (layers.is_first()) {
        wte_ = std::make_shared<nn::Embedding>(nn::Embedding::Options{.num_embeddings = config.vocab_size,
                                                                      .num_used = config.vocab_size,
                                                                      .dim = config.num_channels,
                                                                      .init_stddev = kInitStddev},
                                               device);
        RegisterModule("wte", wte_);
        if (config.dropout != 0.0f) {
            embedding_dropout_ = std::make_shared<nn::Dropout>(
                nn::Dropout::Options{.p = config.dropout, .layer = 0, .position = dropout_position});
        }
    }
    const std::shared_ptr<Tensor> rotary_angles =
        nn::MakeRotaryAngles({.head_dim = config.num_channels / config.num_heads,
                              .max_positions = config.block_size,
                              .theta = config.rope_theta,
                              .scaling_factor = config.rope_scaling_factor,
                              .low_frequency_factor = config.rope_low_frequency_factor,
                              .high_frequency_factor = config.rope_high_frequency_factor,
                              .original_positions = config.rope_original_positions},
                             device);
    std::vector<std::shared_ptr<nn::Module>> blocks;
    for (int layer = layers.begin; layer < layers.end; ++layer) {
        blocks.push_back(MakeBlock(config, layer, rotary_angles, kv_cache(), dropout_position, device));
    }
    h_ = std::make_shared<nn::Sequential>(std::move(blocks), layers.begin);
    RegisterModule("h", h_);
    if (layers.is_last()) {
        ln_f_ = std::make_shared<nn::RmsNorm>(nn::RmsNorm::Options{.dim = config.num_channels, .eps = config.norm_eps},
                                              device);
        lm_head_ = std::make_shared<nn::Linear>(nn::Linear::Options{.in_features = config.num_channels,
                                                                    .out_features = config.vocab_size,
                                                                    .bias = false,
                                                                    .init_stddev = kInitStddev},
                                                device);
        RegisterModule("ln_f", ln_f_);
        const bool is_copy = config.tied_head && wte_ == nullptr;
        // Far from the embedding a tied head is its copy: the same name, hence the same values.
        RegisterModule(is_copy ? "wte" : "lm_head", lm_head_);
        if (is_copy) {
            ShareAcrossStages(lm_head_->weight_slot());
        } else if (config.tied_head) {
            Tie(wte_->weight_slot(), lm_head_->weight_slot());
        }
    } else if (config.tied_head && wte_ != nullptr) {
        ShareAcrossStages(wte_->weight_slot());
    }
}

TensorList Llama3::Forward(const TensorList& inputs) {
    TensorList x = inputs;
    if (wte_ != nullptr) {
        x = wte_->Forward(x);
        x = embedding_dropout_ == nullptr ? x : embedding_dropout_->Forward(x);
    }
    x = h_->Forward(x);
    if (kv_cache()->Serves(*x[0])) {
        kv_cache()->Advance(x[0]->dim(1));
        x = ln_f_ == nullptr ? x : TensorList{nn::LastPositions(*x[0])};
    }
    return ln_f_ == nullptr ? x : lm_head_->Forward(ln_f_->Forward(x));
}

}  // namespace infini_train::llama3
