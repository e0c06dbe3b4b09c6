#pragma once

#include <functional>
#include <memory>
#include <string>

#include "infini_train/include/checkpoint/llmc_gpt2.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::checkpoint {

/// The float32 values of a tensor, on whatever device, by the name in our state dict. Asked once for each name, in the
/// order of the file, so that no more than one tensor needs to be in memory.
using TensorByName = std::function<std::shared_ptr<Tensor>(const std::string& name)>;

/// Write weights in llm.c's formats, in header.dtype. The file appears at its path when it is complete, and what was
/// there before stays until then. What OpenLlmcGpt2 and OpenLlmcLlama3 would refuse throws Error, as does a disk that
/// is full.
/// Padding rows are written as zeros.
void WriteLlmcGpt2(const std::string& path, const LlmcGpt2Header& header, const TensorByName& tensor_of);
/// Writes the integer dialect: throws Error for a norm_eps or rope_theta that it cannot store. The head of a tied model
/// is written as wte.weight again.
void WriteLlmcLlama3(const std::string& path, const LlmcLlama3Header& header, const TensorByName& tensor_of);

}  // namespace infini_train::checkpoint
