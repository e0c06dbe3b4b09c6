#pragma once

#include <string>
#include <vector>

#include "infini_train/include/checkpoint/weight_file.h"

namespace infini_train::checkpoint {

/// A file of safetensors (https://github.com/huggingface/safetensors, "Format"): the tensors under the names they have
/// in the file. Reads the header alone. A tensor with a 0 in its shape is one of them.
/// Mask buffers of GPT-2, "h.<layer>.attn.bias" and "h.<layer>.attn.masked_bias" with or without "transformer." before
/// them, are checked like all others and left out; any other tensor must be F32 or BF16.
/// Throws Error unless the header is strict JSON (no name twice, integers alone), every shape fits its bytes, at most 8
/// axes each, and the tensors cover the rest of the file to its last byte, without holes or overlaps.
WeightFile OpenSafetensors(const std::string& path);

/// The files that a model.safetensors.index.json names, in the order of their names; each lies in the folder of the
/// index. Every tensor is in one of them.
/// Throws Error when OpenSafetensors refuses one of them, when one lies elsewhere or is a link out of the folder, or
/// when its tensors are not those that the index maps to it, or not of metadata.total_size bytes in all.
std::vector<WeightFile> OpenShardedSafetensors(const std::string& index_path);

}  // namespace infini_train::checkpoint
