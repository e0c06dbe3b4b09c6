#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "example/common/model.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/data/tokenizer.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"

namespace infini_train {

struct GenerateOptions {
    int num_tokens = 0;
    float temperature = 1.0f;  // these three: example/common/sampling.h
    int top_k = 0;
    float top_p = 1.0f;
    uint64_t seed = 0;
    uint64_t sample = 0;                              // which of the texts that a seed gives
    std::optional<int32_t> end_token = std::nullopt;  // the text ends with it
    std::function<void(int32_t)> on_token = nullptr;  // called on every rank with each token as soon as it is chosen
    bool uses_cache = true;                           // false: every step computes all positions again
};

/// The tokens of a prompt, names of special tokens in it as those. A text begins as a document does: with the
/// tokenizer's token for that, where there is one; else one without a prompt begins with a line break.
std::vector<int32_t> EncodePrompt(const std::string& prompt, const data::Tokenizer& tokenizer);

/// Throws Error for an empty prompt and for a token that the model does not have.
void CheckPrompt(const ModelSpec& model, std::span<const int32_t> prompt);

/// The prompt's tokens and up to num_tokens more. The prompt passes CheckPrompt or this throws. Collective over the
/// pipeline: the last stage chooses each token, every rank has the result.
///
/// The model sees the last block_size tokens. Up to there each position is computed once: its keys and values stay in
/// the chunks' caches while this runs (where the chunks are CachedModules). A longer text is computed anew for each
/// token, as all positions have moved: no cache fits that.
std::vector<int32_t> Generate(nn::parallel::PipelineParallel& pipeline, const comm::Mesh& mesh, const ModelSpec& model,
                              std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace infini_train
