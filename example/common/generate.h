#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "example/common/model.h"

namespace infini_train {

struct GenerateOptions {
    int num_tokens = 0;
    float temperature = 1.0f;  // 0: always the likeliest token, the first of equals
    uint64_t seed = 0;
};

/// Throws Error for an empty prompt and for a token that the model does not have.
void CheckPrompt(const Model& model, std::span<const int32_t> prompt);

/// The prompt's tokens and num_tokens more. The model sees the last block_size tokens. The prompt passes CheckPrompt or
/// this throws.
std::vector<int32_t> Generate(const Model& model, std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace infini_train
