#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/include/checkpoint/llmc_gpt2.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"
#include "infini_train/include/checkpoint/weight_file.h"

namespace infini_train::checkpoint {

/// Tensors of an llm.c file in the order of the file; readers, writers and debug states all take it from here.
struct LlmcLayout {
    struct Tensor {
        std::string name;  // that of a tensor of layer i follows "h.i."
        Shape shape;       // of one layer's
        bool is_per_layer = false;
        int64_t num_padding_rows = 0;
    };

    std::vector<Tensor> tensors;  // those of one name lie together, layer after layer
    int64_t num_layers = 0;
};

LlmcLayout Gpt2Layout(const LlmcGpt2Header& header);
/// Also for a hidden_size of 0, when it is not known yet.
LlmcLayout Llama3Layout(const LlmcLlama3Header& header);

/// Elements of all tensors of all layers; nothing when they do not fit 64 bits.
std::optional<uint64_t> CountElements(const LlmcLayout& layout);
/// Bytes of all tensors; nothing when they do not fit 64 bits.
std::optional<uint64_t> CountBytes(const LlmcLayout& layout, DataType dtype);

struct PlacedTensor {
    std::string name;
    WeightFile::Entry entry;
};
/// Every tensor of every layer in the order of the file, the first at this byte. The layout's CountBytes must have been
/// checked.
std::vector<PlacedTensor> Place(const LlmcLayout& layout, DataType dtype, uint64_t first_byte);
/// The same as a table.
WeightFile MakeWeightFile(std::shared_ptr<const ReadOnlyFile> file, const LlmcLayout& layout, DataType dtype,
                          uint64_t first_byte);

}  // namespace infini_train::checkpoint
