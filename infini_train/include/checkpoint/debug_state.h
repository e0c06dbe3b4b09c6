#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/include/checkpoint/llmc_gpt2.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"
#include "infini_train/include/checkpoint/weight_file.h"

namespace infini_train::checkpoint {

/// One training step as a reference implementation computed it, in float32. Only readable with the header of the
/// weights that it was computed from.
struct DebugState {
    int64_t batch_size = 0;
    int64_t sequence_length = 0;
    std::vector<int32_t> inputs;   // [B, T]
    std::vector<int32_t> targets;  // [B, T]
    std::vector<float> logits;     // [B, T, vocab_size], without padding
    float loss = 0.0f;
    WeightFile gradients;  // by the names of the weights
};

/// Files that llm.c writes beside its weights: magic 20240327, version 2 for GPT-2; the magic of the weights and no
/// version for LLaMA-3. Throw Error unless the header and the size fit the header of the weights, and for ids outside
/// the vocabulary.
DebugState ReadGpt2DebugState(const std::string& path, const LlmcGpt2Header& header);
DebugState ReadLlama3DebugState(const std::string& path, const LlmcLlama3Header& header);

}  // namespace infini_train::checkpoint
