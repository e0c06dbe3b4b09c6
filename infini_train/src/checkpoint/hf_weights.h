#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "infini_train/include/checkpoint/hf_layout.h"
#include "infini_train/include/checkpoint/weight_file.h"
#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/src/checkpoint/llmc_layout.h"

namespace infini_train::checkpoint {

/// The tensors of a folder, by the names they have there: of model.safetensors, or where that is not, of the files that
/// model.safetensors.index.json names.
class HfTensors {
 public:
    explicit HfTensors(const std::string& folder);

    const std::string& folder() const { return folder_; }
    const std::map<std::string, size_t>& file_of_tensor() const { return file_of_tensor_; }
    bool Contains(const std::string& name) const { return file_of_tensor_.contains(name); }
    /// Throws Error for a tensor that is in none of them.
    const WeightFile& FileOf(const std::string& name) const;
    DataType dtype() const;

 private:
    std::string folder_;
    std::vector<WeightFile> files_;
    std::map<std::string, size_t> file_of_tensor_;
};

inline constexpr char kHfHead[] = "lm_head.weight";

/// The head of a model, whose files may hold the one tensor of a tied head under either name or under both.
struct HfHead {
    bool is_tied = false;
    std::string embedding = {};  // the tensor that holds it
    bool has_copy = false;       // the head is there too, and the same
};
/// tie_word_embeddings: of config.json, if it says so. can_differ: the model may have a head of its own. Throws Error
/// when one of two tensors is missing, or when two that must be equal are not.
HfHead FindHead(const HfTensors& tensors, const std::string& embedding, std::optional<bool> tie_word_embeddings,
                bool can_differ);

/// Parameters in the order of the model: what comes before the layers, layer after layer, what comes after.
/// tensors_of is asked for the tensors of each; the layer is that of a parameter of a layer.
std::vector<HfParameter> MakeHfParameters(
    const LlmcLayout& layout,
    const std::function<std::vector<HfTensor>(const LlmcLayout::Tensor& tensor, int64_t layer)>& tensors_of);

/// The weights of a model in Hugging Face's names, shapes and order of rows as those of ours.
class HfWeights : public WeightSource {
 public:
    /// Throws Error unless every tensor of the layout is there with its shape, and nothing else but a copy of the
    /// embedding.
    HfWeights(HfTensors tensors, const std::vector<HfParameter>& layout, const HfHead& head);

    const std::string& path() const override { return tensors_.folder(); }
    DataType dtype() const override { return tensors_.dtype(); }
    bool Contains(const std::string& name) const override { return layout_.contains(name); }
    const Shape& shape(const std::string& name) const override { return At(name).shape; }
    void ReadRows(const std::string& name, int64_t begin, int64_t end, float* destination) const override;

 private:
    const HfParameter& At(const std::string& name) const;

    HfTensors tensors_;
    std::map<std::string, HfParameter> layout_;
};

}  // namespace infini_train::checkpoint
