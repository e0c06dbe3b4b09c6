#pragma once

#include <cstdint>
#include <string>

#include "infini_train/include/checkpoint/weight_file.h"

namespace infini_train::checkpoint {

struct LlmcGpt2Header {
    int64_t block_size = 0;
    int64_t vocab_size = 0;
    int64_t padded_vocab_size = 0;  // rows of wte; those from vocab_size on read as zero
    int64_t num_layers = 0;
    int64_t num_heads = 0;
    int64_t num_channels = 0;
    DataType dtype = DataType::kFloat32;
};

struct LlmcGpt2File {
    LlmcGpt2Header header;
    WeightFile weights;
};

/// GPT-2 weights in llm.c's format: 256 little-endian int32, then 16 tensors, those of all layers together. Magic
/// 20240326; version 3 is float32, 5 bfloat16. Reads the header alone. The head is wte.weight.
/// Throws Error unless every word of the header and the size of the file are as they must be.
LlmcGpt2File OpenLlmcGpt2(const std::string& path);

}  // namespace infini_train::checkpoint
