#pragma once

#include <cstdint>
#include <string>

#include "infini_train/include/checkpoint/hf_llama.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"

namespace infini_train::llama3 {

struct Llama3Config {
    int64_t block_size = 8192;
    int64_t vocab_size = 128256;
    int num_layers = 16;
    int num_heads = 32;
    int num_kv_heads = 8;
    int64_t num_channels = 2048;
    int64_t hidden_size = 8192;  // of the MLP
    float norm_eps = 1e-5f;
    float rope_theta = 500000.0f;
    float rope_scaling_factor = 1.0f;        // LLaMA-3.1: 8, LLaMA-3.2: 32; 1: none
    float rope_low_frequency_factor = 1.0f;  // nn/modules/attention.h
    float rope_high_frequency_factor = 4.0f;
    int64_t rope_original_positions = 8192;  // the context that the model had before its frequencies were scaled
    bool tied_head = true;
    float dropout = 0.0f;
    bool recompute = false;
    bool deterministic_attention = true;  // false: a faster backward where the device has one
};

/// "tiny", "1b", "8b". Throws Error on another name.
Llama3Config NamedConfig(const std::string& name);
/// rope_scaling_factor: for a file whose header says that frequencies are scaled, but not by how much.
Llama3Config ConfigOf(const checkpoint::LlmcLlama3Header& header, float rope_scaling_factor);
Llama3Config ConfigOf(const checkpoint::HfLlamaConfig& config);
/// How files of such a model describe it.
checkpoint::HfLlamaConfig HfConfigOf(const Llama3Config& config);

}  // namespace infini_train::llama3
