#include "infini_train/src/checkpoint/llmc_layout.h"

#include <map>
#include <utility>

#include "infini_train/include/common/checked_math.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::checkpoint {

LlmcLayout Gpt2Layout(const LlmcGpt2Header& header) {
    const int64_t c = header.num_channels;
    return {.tensors =
                {
                    {.name = "wte.weight",
                     .shape = {header.padded_vocab_size, c},
                     .num_padding_rows = header.padded_vocab_size - header.vocab_size},
                    {.name = "wpe.weight", .shape = {header.block_size, c}},
                    {.name = "ln_1.weight", .shape = {c}, .is_per_layer = true},
                    {.name = "ln_1.bias", .shape = {c}, .is_per_layer = true},
                    {.name = "attn.c_attn.weight", .shape = {3 * c, c}, .is_per_layer = true},
                    {.name = "attn.c_attn.bias", .shape = {3 * c}, .is_per_layer = true},
                    {.name = "attn.c_proj.weight", .shape = {c, c}, .is_per_layer = true},
                    {.name = "attn.c_proj.bias", .shape = {c}, .is_per_layer = true},
                    {.name = "ln_2.weight", .shape = {c}, .is_per_layer = true},
                    {.name = "ln_2.bias", .shape = {c}, .is_per_layer = true},
                    {.name = "mlp.c_fc.weight", .shape = {4 * c, c}, .is_per_layer = true},
                    {.name = "mlp.c_fc.bias", .shape = {4 * c}, .is_per_layer = true},
                    {.name = "mlp.c_proj.weight", .shape = {c, 4 * c}, .is_per_layer = true},
                    {.name = "mlp.c_proj.bias", .shape = {c}, .is_per_layer = true},
                    {.name = "ln_f.weight", .shape = {c}},
                    {.name = "ln_f.bias", .shape = {c}},
                },
            .num_layers = header.num_layers};
}

LlmcLayout Llama3Layout(const LlmcLlama3Header& header) {
    const int64_t c = header.num_channels;
    const int64_t hidden = header.hidden_size;
    const int64_t qkv = (header.num_heads + 2 * header.num_kv_heads) * (c / header.num_heads);
    return {.tensors =
                {
                    {.name = "wte.weight", .shape = {header.vocab_size, c}},
                    {.name = "ln_1.weight", .shape = {c}, .is_per_layer = true},
                    {.name = "attn.c_attn.weight", .shape = {qkv, c}, .is_per_layer = true},
                    {.name = "attn.c_proj.weight", .shape = {c, c}, .is_per_layer = true},
                    {.name = "ln_2.weight", .shape = {c}, .is_per_layer = true},
                    {.name = "mlp.c_fc.weight", .shape = {hidden, c}, .is_per_layer = true},
                    {.name = "mlp.c_fc2.weight", .shape = {hidden, c}, .is_per_layer = true},
                    {.name = "mlp.c_proj.weight", .shape = {c, hidden}, .is_per_layer = true},
                    {.name = "ln_f.weight", .shape = {c}},
                    {.name = "lm_head.weight", .shape = {header.vocab_size, c}},
                },
            .num_layers = header.num_layers};
}

std::optional<uint64_t> CountElements(const LlmcLayout& layout) {
    std::optional<uint64_t> total = 0;
    for (const LlmcLayout::Tensor& tensor : layout.tensors) {
        std::optional<uint64_t> size = tensor.is_per_layer ? static_cast<uint64_t>(layout.num_layers) : 1;
        for (const int64_t extent : tensor.shape) {
            size = size.has_value() ? CheckedMultiply(*size, static_cast<uint64_t>(extent)) : std::nullopt;
        }
        total = total.has_value() && size.has_value() ? CheckedAdd(*total, *size) : std::nullopt;
    }
    return total;
}

std::optional<uint64_t> CountBytes(const LlmcLayout& layout, DataType dtype) {
    const std::optional<uint64_t> num_elements = CountElements(layout);
    return num_elements.has_value() ? CheckedMultiply(*num_elements, SizeOf(dtype)) : std::nullopt;
}

std::vector<PlacedTensor> Place(const LlmcLayout& layout, DataType dtype, uint64_t first_byte) {
    std::vector<PlacedTensor> placed;
    uint64_t offset = first_byte;
    for (const LlmcLayout::Tensor& tensor : layout.tensors) {
        const int64_t count = tensor.is_per_layer ? layout.num_layers : 1;
        const uint64_t size_bytes = static_cast<uint64_t>(NumElements(tensor.shape)) * SizeOf(dtype);
        for (int64_t layer = 0; layer < count; ++layer) {
            placed.push_back({.name = tensor.is_per_layer ? StrCat("h.", layer, ".", tensor.name) : tensor.name,
                              .entry = {.offset = offset,
                                        .shape = tensor.shape,
                                        .dtype = dtype,
                                        .num_padding_rows = tensor.num_padding_rows}});
            offset += size_bytes;
        }
    }
    return placed;
}

WeightFile MakeWeightFile(std::shared_ptr<const ReadOnlyFile> file, const LlmcLayout& layout, DataType dtype,
                          uint64_t first_byte) {
    std::map<std::string, WeightFile::Entry> entries;
    for (PlacedTensor& tensor : Place(layout, dtype, first_byte)) {
        entries.emplace(std::move(tensor.name), std::move(tensor.entry));
    }
    return {std::move(file), std::move(entries)};
}

}  // namespace infini_train::checkpoint
