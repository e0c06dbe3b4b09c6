#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "infini_train/include/checkpoint/hf_layout.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"
#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/core/dtype.h"

namespace infini_train::checkpoint {

/// LLaMA-3.1's stretching of the rotary frequencies to longer contexts (nn/modules/attention.h has the formula).
struct HfRopeScaling {
    float factor = 8.0f;
    float low_frequency_factor = 1.0f;
    float high_frequency_factor = 4.0f;
    int64_t original_positions = 8192;

    bool operator==(const HfRopeScaling&) const = default;
};

/// What the config.json of a LLaMA says. Its MLPs are SwiGLU, no layer has a bias.
struct HfLlamaConfig {
    int64_t block_size = 0;
    int64_t vocab_size = 0;
    int64_t num_layers = 0;
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t num_channels = 0;
    int64_t hidden_size = 0;  // of the MLP
    float norm_eps = 1e-5f;
    float rope_theta = 10000.0f;
    std::optional<HfRopeScaling> rope_scaling = std::nullopt;
    bool tied_head = false;
};

/// rope_scaling_factor: for a header that says that frequencies are scaled, but not by how much.
HfLlamaConfig HfConfigOf(const LlmcLlama3Header& header, float rope_scaling_factor);
/// Throws Error, in the name of the file at path, for a scaling of the rotary frequencies whose numbers but the factor
/// are not those of HfRopeScaling: the header of the file can only say that there is one.
LlmcLlama3Header LlmcHeaderOf(const std::string& path, const HfLlamaConfig& config, DataType dtype);

/// Writes no head when it is tied.
class HfLlama : public HfLayoutModel {
 public:
    explicit HfLlama(const HfLlamaConfig& config);

    std::string ConfigJson() const override;

 private:
    HfLlamaConfig config_;
};

struct HfLlamaFolder {
    HfLlamaConfig config;
    std::shared_ptr<const WeightSource> weights;
};

/// A folder with config.json and model.safetensors, or model.safetensors.index.json and the files that it names. Reads
/// the headers; and the embedding and the head, where the head is tied and there are both.
/// Rotary settings may be at the top level of config.json (rope_theta, rope_scaling) or in its rope_parameters.
/// Throws Error for a config that asks for another model than HfLlamaConfig describes, for a tied head that differs
/// from the embedding, and unless the tensors are exactly those of the model.
HfLlamaFolder OpenHfLlama(const std::string& folder);

}  // namespace infini_train::checkpoint
