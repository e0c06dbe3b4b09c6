#pragma once

#include <memory>
#include <string>

#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "infini_train/include/checkpoint/hf_llama.h"
#include "infini_train/include/checkpoint/hf_model.h"
#include "infini_train/include/checkpoint/weight_source.h"
#include "test/support/tiny_model.h"

// How the files of checkpoints describe the tiny models.

namespace infini_train::checkpoint::test {

inline std::shared_ptr<const HfModel> HfModelOf(const infini_train::test::TinyModel& model) {
    if (model.kind == infini_train::test::TinyModelKind::kGpt2) {
        return std::make_shared<HfGpt2>(HfGpt2Config{.block_size = model.block_size,
                                                     .vocab_size = infini_train::test::kTinyVocab,
                                                     .padded_vocab_size = 16,
                                                     .num_layers = model.num_layers,
                                                     .num_heads = 2,
                                                     .num_channels = model.num_channels});
    }
    return std::make_shared<HfLlama>(HfLlamaConfig{.block_size = model.block_size,
                                                   .vocab_size = infini_train::test::kTinyVocab,
                                                   .num_layers = model.num_layers,
                                                   .num_heads = 4,
                                                   .num_kv_heads = 2,
                                                   .num_channels = model.num_channels,
                                                   .hidden_size = model.num_channels * 3 / 2,
                                                   .tied_head = model.is_tied()});
}

inline std::shared_ptr<const WeightSource> OpenWeights(const infini_train::test::TinyModel& model,
                                                       const std::string& folder) {
    return model.kind == infini_train::test::TinyModelKind::kGpt2 ? OpenHfGpt2(folder).weights
                                                                  : OpenHfLlama(folder).weights;
}

}  // namespace infini_train::checkpoint::test
