#include "infini_train/src/checkpoint/hf_weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/checkpoint/safetensors.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/hf_order.h"
#include "infini_train/src/checkpoint/safetensors_header.h"

namespace infini_train::checkpoint {
namespace {

constexpr int64_t kCompareValues = int64_t{1} << 16;  // of the embedding and the head, at once

std::vector<WeightFile> OpenFiles(const std::string& folder) {
    const std::string whole = folder + "/model.safetensors";
    const std::string index = whole + ".index.json";
    std::error_code none;
    if (std::filesystem::exists(whole, none)) {
        return {OpenSafetensors(whole)};
    }
    if (!std::filesystem::exists(index, none)) {
        throw Error({.where = folder,
                     .what = "has no weights that can be read",
                     .wanted = "model.safetensors or model.safetensors.index.json"});
    }
    return OpenShardedSafetensors(index);
}

bool AreEqual(const HfTensors& tensors, const std::string& a, const std::string& b) {
    const WeightFile& a_file = tensors.FileOf(a);
    const WeightFile& b_file = tensors.FileOf(b);
    const Shape& shape = a_file.shape(a);
    if (shape != b_file.shape(b) || shape.size() != 2) {
        return false;
    }
    const int64_t chunk_rows = std::max<int64_t>(1, kCompareValues / std::max<int64_t>(1, shape[1]));
    std::vector<float> a_values;
    std::vector<float> b_values;
    for (int64_t begin = 0; begin < shape[0]; begin += chunk_rows) {
        const int64_t end = std::min(begin + chunk_rows, shape[0]);
        a_values.resize(static_cast<size_t>((end - begin) * shape[1]));
        b_values.resize(a_values.size());
        a_file.ReadRows(a, begin, end, a_values.data());
        b_file.ReadRows(b, begin, end, b_values.data());
        if (std::memcmp(a_values.data(), b_values.data(), a_values.size() * sizeof(float)) != 0) {
            return false;
        }
    }
    return true;
}

/// Rows [begin, end) of the parameter that this tensor gives.
void ReadRowsOf(const WeightFile& file, const HfTensor& tensor, int64_t begin, int64_t end, int64_t row_size,
                float* destination) {
    switch (tensor.order) {
        case HfTensor::Order::kSame:
            file.ReadRows(tensor.name, begin, end, destination);
            return;
        case HfTensor::Order::kTransposed:
            file.ReadColumns(tensor.name, begin, end, destination);
            return;
        case HfTensor::Order::kRotaryHalves:
            for (int64_t row = begin; row < end; ++row) {
                const int64_t stored = RotaryHalvesRow(row, tensor.head_dim);
                file.ReadRows(tensor.name, stored, stored + 1, destination + (row - begin) * row_size);
            }
            return;
    }
}

}  // namespace

HfTensors::HfTensors(const std::string& folder) : folder_(folder), files_(OpenFiles(folder)) {
    for (size_t file = 0; file < files_.size(); ++file) {
        for (const std::string& name : files_[file].names()) {
            file_of_tensor_.emplace(name, file);
        }
    }
}

const WeightFile& HfTensors::FileOf(const std::string& name) const {
    const auto found = file_of_tensor_.find(name);
    if (found == file_of_tensor_.end()) {
        throw Error({.where = folder_, .what = "has no tensor " + name});
    }
    return files_[found->second];
}

DataType HfTensors::dtype() const {
    const bool all_are_bfloat16 = std::all_of(
        files_.begin(), files_.end(), [](const WeightFile& file) { return file.dtype() == DataType::kBFloat16; });
    return all_are_bfloat16 ? DataType::kBFloat16 : DataType::kFloat32;
}

HfHead FindHead(const HfTensors& tensors, const std::string& embedding, std::optional<bool> tie_word_embeddings,
                bool can_differ) {
    const bool has_embedding = tensors.Contains(embedding);
    const bool has_head = tensors.Contains(kHfHead);
    if (!has_embedding || !has_head) {
        const std::string missing = has_embedding ? kHfHead : embedding;
        if (tie_word_embeddings == false || (!has_embedding && !has_head)) {
            throw Error({.where = tensors.folder(),
                         .what = "has no tensor " + missing,
                         .got = tie_word_embeddings == false ? "tie_word_embeddings false in config.json" : ""});
        }
        return {.is_tied = true, .embedding = has_embedding ? embedding : kHfHead};
    }
    const bool is_tied = tie_word_embeddings.value_or(false) || !can_differ;
    if (is_tied && !AreEqual(tensors, embedding, kHfHead)) {
        throw Error({.where = tensors.folder(),
                     .what = StrCat("tensors ", embedding, " and ", kHfHead, " differ"),
                     .wanted = can_differ ? "the same values, as config.json says tie_word_embeddings true"
                                          : "the same values: the head of this model is its embedding"});
    }
    return {.is_tied = is_tied, .embedding = embedding, .has_copy = is_tied};
}

std::vector<HfParameter> MakeHfParameters(
    const LlmcLayout& layout,
    const std::function<std::vector<HfTensor>(const LlmcLayout::Tensor& tensor, int64_t layer)>& tensors_of) {
    const auto is_per_layer = [](const LlmcLayout::Tensor& tensor) { return tensor.is_per_layer; };
    const auto first = std::find_if(layout.tensors.begin(), layout.tensors.end(), is_per_layer);
    const auto last = std::find_if_not(first, layout.tensors.end(), is_per_layer);
    std::vector<HfParameter> parameters;
    const auto add = [&](auto begin, auto end, int64_t layer) {
        for (auto tensor = begin; tensor != end; ++tensor) {
            parameters.push_back({.name = tensor->is_per_layer ? StrCat("h.", layer, ".", tensor->name) : tensor->name,
                                  .shape = tensor->shape,
                                  .tensors = tensors_of(*tensor, layer)});
        }
    };
    add(layout.tensors.begin(), first, 0);
    for (int64_t layer = 0; layer < layout.num_layers; ++layer) {
        add(first, last, layer);
    }
    add(last, layout.tensors.end(), 0);
    return parameters;
}

HfWeights::HfWeights(HfTensors tensors, const std::vector<HfParameter>& layout, const HfHead& head)
    : tensors_(std::move(tensors)) {
    std::set<std::string> known;
    if (head.has_copy) {
        known.insert(kHfHead);
    }
    for (const HfParameter& parameter : layout) {
        for (const HfTensor& tensor : parameter.tensors) {
            const Shape& shape = tensors_.FileOf(tensor.name).shape(tensor.name);
            if (shape != tensor.shape) {
                throw Error({.where = path(),
                             .what = StrCat("tensor ", tensor.name, " has another shape than config.json says"),
                             .got = ToString(shape),
                             .wanted = ToString(tensor.shape)});
            }
            known.insert(tensor.name);
        }
        layout_.emplace(parameter.name, parameter);
    }
    for (const auto& [name, file] : tensors_.file_of_tensor()) {
        if (!known.contains(name)) {
            throw Error(
                {.where = path(), .what = StrCat("tensor ", Quoted(name), " is none of the model in config.json")});
        }
    }
}

void HfWeights::ReadRows(const std::string& name, int64_t begin, int64_t end, float* destination) const {
    const HfParameter& parameter = At(name);
    CHECK(0 <= begin && begin <= end && end <= parameter.shape[0])
        << path() << ": rows " << begin << " to " << end << " of " << name << " " << ToString(parameter.shape);
    const int64_t row_size = NumElements(parameter.shape) / parameter.shape[0];
    int64_t first = 0;  // row of the tensor, in the parameter
    for (const HfTensor& tensor : parameter.tensors) {
        const int64_t from = std::max(begin, first);
        const int64_t to = std::min(end, first + tensor.num_rows());
        if (from < to) {
            ReadRowsOf(tensors_.FileOf(tensor.name), tensor, from - first, to - first, row_size,
                       destination + (from - begin) * row_size);
        }
        first += tensor.num_rows();
    }
    const int64_t padding = std::clamp(first, begin, end);
    std::fill(destination + (padding - begin) * row_size, destination + (end - begin) * row_size, 0.0f);
}

const HfParameter& HfWeights::At(const std::string& name) const {
    const auto found = layout_.find(name);
    if (found == layout_.end()) {
        throw Error({.where = path(), .what = "has no tensor " + name});
    }
    return found->second;
}

}  // namespace infini_train::checkpoint
