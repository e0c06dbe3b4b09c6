#pragma once

#include <cstdint>
#include <string>

#include "infini_train/include/checkpoint/hf_model.h"
#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/core/dtype.h"

namespace infini_train::checkpoint {

struct HfExportOptions {
    DataType dtype = DataType::kFloat32;  // or kBFloat16: rounded to nearest
    /// Of the tensors of one file; a larger tensor has a file to itself. Several files get an index.
    uint64_t max_shard_bytes = 5'000'000'000;
};

/// Writes a model as a folder in Hugging Face's format: config.json, and model.safetensors or its shards. The folder
/// appears when it is complete; it must not exist, or be empty. Holds one parameter at a time, and a tensor of it.
/// Throws Error when it cannot be written, or when the weights lack a parameter or have another shape of it.
void ExportHf(const std::string& folder, const HfModel& model, const WeightSource& weights,
              const HfExportOptions& options);

}  // namespace infini_train::checkpoint
