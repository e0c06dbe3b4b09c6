#pragma once

#include <memory>

#include "example/llama3/config.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/container.h"
#include "infini_train/include/nn/modules/dropout.h"
#include "infini_train/include/nn/modules/embedding.h"
#include "infini_train/include/nn/modules/kv_cache.h"
#include "infini_train/include/nn/modules/linear.h"
#include "infini_train/include/nn/modules/rms_norm.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"

namespace infini_train::llama3 {

/// The layers [begin, end) of a LLaMA-3, with the embedding if they begin the model and the final norm and the head if
/// they end it. Parameter names carry the layer's number in the whole model: wte.weight, h.{i}...., ln_f.weight,
/// lm_head.weight (not when tied). Forward: {ids int32 [B, T]} or {hidden states [B, T, C]} -> {hidden states} or
/// {logits [B, T, vocab_size]}; where the cache serves the input, its positions follow those in the cache, and the
/// logits are those of the last position, [B, 1, vocab_size]
class Llama3 : public nn::CachedModule {
 public:
    Llama3(const Llama3Config& config, const nn::parallel::LayerRange& layers,
           std::shared_ptr<nn::DropoutPosition> dropout_position, const Device& device);

    TensorList Forward(const TensorList& inputs) override;

 private:
    std::shared_ptr<nn::Embedding> wte_;
    std::shared_ptr<nn::Dropout> embedding_dropout_;
    std::shared_ptr<nn::Sequential> h_;
    std::shared_ptr<nn::RmsNorm> ln_f_;
    std::shared_ptr<nn::Linear> lm_head_;
};

}  // namespace infini_train::llama3
