#include "example/llama3/config.h"

#include "infini_train/include/common/error.h"

namespace infini_train::llama3 {

Llama3Config NamedConfig(const std::string& name) {
    if (name == "tiny") {
        return {.block_size = 256,
                .vocab_size = 257,
                .num_layers = 8,
                .num_heads = 8,
                .num_kv_heads = 2,
                .num_channels = 128,
                .hidden_size = 352,
                .tied_head = false};
    }
    if (name == "1b") {
        return {.rope_scaling_factor = 32.0f};
    }
    if (name == "8b") {
        return {.num_layers = 32,
                .num_channels = 4096,
                .hidden_size = 14336,
                .rope_scaling_factor = 8.0f,
                .tied_head = false};
    }
    throw Error({.where = "--model", .what = "unknown LLaMA", .got = name, .wanted = "tiny, 1b or 8b"});
}

Llama3Config ConfigOf(const checkpoint::LlmcLlama3Header& header, float rope_scaling_factor) {
    return ConfigOf(checkpoint::HfConfigOf(header, rope_scaling_factor));
}

Llama3Config ConfigOf(const checkpoint::HfLlamaConfig& config) {
    Llama3Config ours = {.block_size = config.block_size,
                         .vocab_size = config.vocab_size,
                         .num_layers = static_cast<int>(config.num_layers),
                         .num_heads = static_cast<int>(config.num_heads),
                         .num_kv_heads = static_cast<int>(config.num_kv_heads),
                         .num_channels = config.num_channels,
                         .hidden_size = config.hidden_size,
                         .norm_eps = config.norm_eps,
                         .rope_theta = config.rope_theta,
                         .tied_head = config.tied_head};
    if (config.rope_scaling.has_value()) {
        ours.rope_scaling_factor = config.rope_scaling->factor;
        ours.rope_low_frequency_factor = config.rope_scaling->low_frequency_factor;
        ours.rope_high_frequency_factor = config.rope_scaling->high_frequency_factor;
        ours.rope_original_positions = config.rope_scaling->original_positions;
    }
    return ours;
}

checkpoint::HfLlamaConfig HfConfigOf(const Llama3Config& config) {
    checkpoint::HfLlamaConfig theirs = {.block_size = config.block_size,
                                        .vocab_size = config.vocab_size,
                                        .num_layers = config.num_layers,
                                        .num_heads = config.num_heads,
                                        .num_kv_heads = config.num_kv_heads,
                                        .num_channels = config.num_channels,
                                        .hidden_size = config.hidden_size,
                                        .norm_eps = config.norm_eps,
                                        .rope_theta = config.rope_theta,
                                        .tied_head = config.tied_head};
    if (config.rope_scaling_factor != 1.0f) {
        theirs.rope_scaling = {.factor = config.rope_scaling_factor,
                               .low_frequency_factor = config.rope_low_frequency_factor,
                               .high_frequency_factor = config.rope_high_frequency_factor,
                               .original_positions = config.rope_original_positions};
    }
    return theirs;
}

}  // namespace infini_train::llama3
