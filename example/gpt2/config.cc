#include "example/gpt2/config.h"

#include "infini_train/include/common/error.h"

namespace infini_train::gpt2 {

Gpt2Config NamedConfig(const std::string& name) {
    if (name == "tiny") {
        return {.block_size = 256,
                .vocab_size = 257,
                .padded_vocab_size = 384,
                .num_layers = 8,
                .num_heads = 4,
                .num_channels = 128};
    }
    if (name == "d12") {
        return {.num_layers = 12, .num_heads = 12, .num_channels = 768};
    }
    if (name == "d24") {
        return {.num_layers = 24, .num_heads = 16, .num_channels = 1024};
    }
    if (name == "d36") {
        return {.num_layers = 36, .num_heads = 20, .num_channels = 1280};
    }
    if (name == "d48") {
        return {.num_layers = 48, .num_heads = 25, .num_channels = 1600};
    }
    throw Error({.where = "--model", .what = "unknown GPT-2", .got = name, .wanted = "tiny, d12, d24, d36 or d48"});
}

Gpt2Config ConfigOf(const checkpoint::LlmcGpt2Header& header) {
    return ConfigOf(checkpoint::HfConfigOf(header));
}

Gpt2Config ConfigOf(const checkpoint::HfGpt2Config& config) {
    return {.block_size = config.block_size,
            .vocab_size = config.vocab_size,
            .padded_vocab_size = config.padded_vocab_size,
            .num_layers = static_cast<int>(config.num_layers),
            .num_heads = static_cast<int>(config.num_heads),
            .num_channels = config.num_channels};
}

checkpoint::HfGpt2Config HfConfigOf(const Gpt2Config& config) {
    return {.block_size = config.block_size,
            .vocab_size = config.vocab_size,
            .padded_vocab_size = config.padded_vocab_size,
            .num_layers = config.num_layers,
            .num_heads = config.num_heads,
            .num_channels = config.num_channels};
}

}  // namespace infini_train::gpt2
