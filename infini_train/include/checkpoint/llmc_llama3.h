#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/include/checkpoint/weight_file.h"

namespace infini_train::checkpoint {

struct LlmcLlama3Header {
    int64_t block_size = 0;
    int64_t vocab_size = 0;
    int64_t num_layers = 0;
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t num_channels = 0;
    int64_t hidden_size = 0;  // of the MLP, from the size of the file: the header cannot say it
    float norm_eps = 1e-5f;
    float rope_theta = 500000.0f;
    bool use_scaled_rope = false;
    bool head_is_tied = false;  // the bytes of lm_head.weight, which is always there, are those of wte.weight
    DataType dtype = DataType::kFloat32;
    std::vector<std::string> notes =
        {};  // lines for the user: what the file does not say, and what does not fit together
};

struct LlmcLlama3File {
    LlmcLlama3Header header;
    WeightFile weights;
};

/// LLaMA-3 weights in llm.c's format: 256 little-endian int32, then 10 tensors, those of all layers together. Magic
/// 20240803; version 3 is float32, 5 bfloat16. Words 8, 10 and 11 (MLP multiplier, norm eps, RoPE theta) are integers
/// as llm.c writes them, which cuts 1e-5 to 0, or the bits of floats: both are read, told apart by which of the two
/// readings makes sense. Rows of Q and K are in the interleaved order of rotary pairs.
/// Reads the header, and the embedding and the head as far as they are equal.
/// Throws Error unless every word of the header and the size of the file are as they must be.
LlmcLlama3File OpenLlmcLlama3(const std::string& path);

}  // namespace infini_train::checkpoint
