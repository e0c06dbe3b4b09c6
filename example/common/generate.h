#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "example/common/model.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"

namespace infini_train {

struct GenerateOptions {
    int num_tokens = 0;
    float temperature = 1.0f;  // 0: always the likeliest token, the first of equals
    uint64_t seed = 0;
};

/// Throws Error for an empty prompt and for a token that the model does not have.
void CheckPrompt(const ModelSpec& model, std::span<const int32_t> prompt);

/// The prompt's tokens and num_tokens more. The model sees the last block_size tokens. The prompt passes CheckPrompt or
/// this throws. Collective over the pipeline: the last stage chooses each token, every rank has the result.
std::vector<int32_t> Generate(nn::parallel::PipelineParallel& pipeline, const comm::Mesh& mesh, const ModelSpec& model,
                              std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace infini_train
