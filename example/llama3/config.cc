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
    return {.block_size = header.block_size,
            .vocab_size = header.vocab_size,
            .num_layers = static_cast<int>(header.num_layers),
            .num_heads = static_cast<int>(header.num_heads),
            .num_kv_heads = static_cast<int>(header.num_kv_heads),
            .num_channels = header.num_channels,
            .hidden_size = header.hidden_size,
            .norm_eps = header.norm_eps,
            .rope_theta = header.rope_theta,
            .rope_scaling_factor = header.use_scaled_rope ? rope_scaling_factor : 1.0f,
            .tied_head = header.head_is_tied};
}

}  // namespace infini_train::llama3
