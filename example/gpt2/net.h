#pragma once

#include <map>
#include <memory>

#include "example/gpt2/config.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/container.h"
#include "infini_train/include/nn/modules/dropout.h"
#include "infini_train/include/nn/modules/embedding.h"
#include "infini_train/include/nn/modules/kv_cache.h"
#include "infini_train/include/nn/modules/layer_norm.h"
#include "infini_train/include/nn/modules/linear.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"

namespace infini_train::gpt2 {

/// The layers [begin, end) of a GPT-2, with the embeddings if they begin the model and the final norm and the head if
/// they end it. Parameter names carry the layer's number in the whole model: wte.weight, wpe.weight, h.{i}....,
/// ln_f...; the head is wte. Forward: {ids int32 [B, T]} or {hidden states [B, T, C]} -> {hidden states} or {logits [B,
/// T, padded_vocab_size]}; where the cache serves the input, its positions follow those in the cache, and the logits
/// are those of the last position, [B, 1, padded_vocab_size]
class Gpt2 : public nn::CachedModule {
 public:
    Gpt2(const Gpt2Config& config, const nn::parallel::LayerRange& layers,
         std::shared_ptr<nn::DropoutPosition> dropout_position, const Device& device);

    TensorList Forward(const TensorList& inputs) override;

 private:
    std::shared_ptr<Tensor> Embed(const Tensor& ids);
    /// 0, 1, 2, ... along each row of ids, or on from those in the cache.
    std::shared_ptr<Tensor> PositionIds(const Tensor& ids);

    Device device_;
    // By shape, uploaded once, and for good: a recorded step reads them where they were.
    std::map<Shape, std::shared_ptr<Tensor>> position_ids_;
    std::shared_ptr<nn::Embedding> wte_;
    std::shared_ptr<nn::Embedding> wpe_;
    std::shared_ptr<nn::Dropout> embedding_dropout_;
    std::shared_ptr<nn::Sequential> h_;
    std::shared_ptr<nn::LayerNorm> ln_f_;
    std::shared_ptr<nn::Linear> lm_head_;
};

}  // namespace infini_train::gpt2
