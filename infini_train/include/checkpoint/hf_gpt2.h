#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "infini_train/include/checkpoint/hf_layout.h"
#include "infini_train/include/checkpoint/llmc_gpt2.h"
#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/core/dtype.h"

namespace infini_train::checkpoint {

/// What the config.json of a GPT-2 says. Its norms have eps 1e-5, its MLPs the tanh form of GELU and four times the
/// channels, its head is the embedding.
struct HfGpt2Config {
    int64_t block_size = 0;
    int64_t vocab_size = 0;
    int64_t padded_vocab_size = 0;  // rows of wte; those from vocab_size on are zero, and in no file
    int64_t num_layers = 0;
    int64_t num_heads = 0;
    int64_t num_channels = 0;
};

HfGpt2Config HfConfigOf(const LlmcGpt2Header& header);
LlmcGpt2Header LlmcHeaderOf(const HfGpt2Config& config, DataType dtype);

/// Writes the names without "transformer.", as the first GPT-2 has them, and no head. config.json has a key of our own,
/// padded_vocab_size.
class HfGpt2 : public HfLayoutModel {
 public:
    explicit HfGpt2(const HfGpt2Config& config);

    std::string ConfigJson() const override;

 private:
    HfGpt2Config config_;
};

struct HfGpt2Folder {
    HfGpt2Config config;
    std::shared_ptr<const WeightSource> weights;
};

/// A folder with config.json and model.safetensors, or model.safetensors.index.json and the files that it names. Reads
/// the headers; and the embedding and the head, where there are both. Names may begin with "transformer." (all of them,
/// or none); mask buffers are left out. A config without padded_vocab_size gets the next multiple of 128.
/// Throws Error for a config that asks for another model than HfGpt2Config describes, for a head that differs from the
/// embedding, and unless the tensors are exactly those of the model.
HfGpt2Folder OpenHfGpt2(const std::string& folder);

}  // namespace infini_train::checkpoint
