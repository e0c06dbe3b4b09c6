#include "infini_train/include/checkpoint/write_llmc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/common/checked_math.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/llmc_header.h"
#include "infini_train/src/checkpoint/llmc_layout.h"

namespace infini_train::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{1} << 17;  // values copied to the host, narrowed and written at once

/// A value that int32 cannot hold becomes -1, which every field refuses.
int32_t WordOf(int64_t value) {
    return value > std::numeric_limits<int32_t>::max() ? -1 : static_cast<int32_t>(value);
}

int32_t VersionOf(DataType dtype) {
    CHECK(IsFloat(dtype)) << "llm.c weights as " << Name(dtype);
    return dtype == DataType::kFloat32 ? kFloat32Version : kBFloat16Version;
}

void AppendValues(const std::vector<float>& values, DataType dtype, AtomicFile& file) {
    if (dtype == DataType::kFloat32) {
        file.Append(values.data(), values.size() * sizeof(float));
        return;
    }
    const std::vector<BFloat16> narrow(values.begin(), values.end());
    file.Append(narrow.data(), narrow.size() * sizeof(BFloat16));
}

void Append(const Tensor& tensor, const PlacedTensor& placed, AtomicFile& file) {
    const WeightFile::Entry& entry = placed.entry;
    CHECK(tensor.shape() == entry.shape) << placed.name << " is " << ToString(tensor.shape()) << ", the header says "
                                         << ToString(entry.shape);
    const int64_t num_padding = entry.num_padding_rows == 0 ? 0 : entry.num_padding_rows * entry.shape.back();
    const int64_t num_values = tensor.num_elements() - num_padding;
    const std::shared_ptr<Tensor> flat = tensor.View({tensor.num_elements()});
    for (int64_t begin = 0; begin < num_values; begin += kChunk) {
        AppendValues(flat->Slice(begin, std::min(begin + kChunk, num_values))->ToVector<float>(), entry.dtype, file);
    }
    AppendValues(std::vector<float>(static_cast<size_t>(num_padding)), entry.dtype, file);
}

void Write(const std::string& path, const LlmcHeader::Words& words, const LlmcLayout& layout, DataType dtype,
           const TensorByName& tensor_of) {
    AtomicFile file(path);
    file.Append(words.data(), kHeaderBytes);
    for (const PlacedTensor& placed : Place(layout, dtype, kHeaderBytes)) {
        const std::shared_ptr<Tensor> tensor = tensor_of(placed.name);
        CHECK(tensor != nullptr) << "no tensor " << placed.name << " to write";
        Append(*tensor, placed, file);
    }
    file.Commit();
}

LlmcHeader::Words WordsOf(const LlmcLlama3Header& header) {
    // What the reader derives the width of the MLP from is the size of the file; these two must only allow it.
    const int64_t multiplier = header.hidden_size / std::max<int64_t>(1, 8 * header.num_channels / 3);
    const int64_t multiple_of = std::gcd<int64_t, int64_t>(header.hidden_size, 1024);
    const float theta = header.rope_theta;
    const bool theta_is_integer = theta >= 0.0f && theta <= 1e9f && std::trunc(theta) == theta;
    return {kLlama3Magic,
            VersionOf(header.dtype),
            WordOf(header.block_size),
            WordOf(header.vocab_size),
            WordOf(header.num_layers),
            WordOf(header.num_heads),
            WordOf(header.num_kv_heads),
            WordOf(header.num_channels),
            WordOf(std::min<int64_t>(multiplier, 8)),
            WordOf(multiple_of),
            0,
            theta_is_integer ? static_cast<int32_t>(theta) : -1,
            header.use_scaled_rope ? 1 : 0,
            4,  // max_gen_batch_size, which nothing reads
            3,
            1};
}

}  // namespace

void WriteLlmcGpt2(const std::string& path, const LlmcGpt2Header& header, const TensorByName& tensor_of) {
    const LlmcHeader::Words words = {kGpt2Magic,
                                     VersionOf(header.dtype),
                                     WordOf(header.block_size),
                                     WordOf(header.vocab_size),
                                     WordOf(header.num_layers),
                                     WordOf(header.num_heads),
                                     WordOf(header.num_channels),
                                     WordOf(header.padded_vocab_size)};
    ParseGpt2Header(LlmcHeader(path, words));
    Write(path, words, Gpt2Layout(header), header.dtype, tensor_of);
}

void WriteLlmcLlama3(const std::string& path, const LlmcLlama3Header& header, const TensorByName& tensor_of) {
    const LlmcHeader::Words words = WordsOf(header);
    LlmcHeader(path, words).ReadField(5, "num_heads", 1, kMaxChannels);  // the layout divides by it
    const LlmcLayout layout = Llama3Layout(header);
    const std::optional<uint64_t> data_bytes = CountBytes(layout, header.dtype);
    const std::optional<uint64_t> size_bytes =
        data_bytes.has_value() ? CheckedAdd(*data_bytes, kHeaderBytes) : std::nullopt;
    if (!size_bytes.has_value()) {
        throw Error({.where = path, .what = "the weights are larger than 2^64 bytes"});
    }
    const LlmcLlama3Header as_read = ParseLlama3Header(LlmcHeader(path, words), *size_bytes);
    if (as_read.norm_eps != header.norm_eps) {
        throw Error({.where = path,
                     .what = "this file format cannot store norm_eps",
                     .got = StrCat(header.norm_eps),
                     .wanted = StrCat(as_read.norm_eps)});
    }
    Write(path, words, layout, header.dtype, [&](const std::string& name) {
        return tensor_of(header.head_is_tied && name == "lm_head.weight" ? "wte.weight" : name);
    });
}

}  // namespace infini_train::checkpoint
