#pragma once

#include <cstdint>
#include <string>

#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "infini_train/include/checkpoint/llmc_gpt2.h"

namespace infini_train::gpt2 {

struct Gpt2Config {
    int64_t block_size = 1024;  // the longest sequence: positions are learned
    int64_t vocab_size = 50257;
    int64_t padded_vocab_size = 50304;  // rows of the embedding; those from vocab_size on take no part
    int num_layers = 12;
    int num_heads = 12;
    int64_t num_channels = 768;
    float dropout = 0.0f;
    bool recompute = false;
    bool deterministic_attention = true;  // false: a faster backward where the device has one
};

/// "tiny", "d12", "d24", "d36", "d48". Throws Error on another name.
Gpt2Config NamedConfig(const std::string& name);
Gpt2Config ConfigOf(const checkpoint::LlmcGpt2Header& header);
Gpt2Config ConfigOf(const checkpoint::HfGpt2Config& config);
/// How files of such a model describe it.
checkpoint::HfGpt2Config HfConfigOf(const Gpt2Config& config);

}  // namespace infini_train::gpt2
