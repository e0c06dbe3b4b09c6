#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "infini_train/include/checkpoint/hf_model.h"
#include "infini_train/include/core/shape.h"

namespace infini_train::checkpoint {

/// A tensor of Hugging Face's files, and how its rows become rows of a parameter of ours.
struct HfTensor {
    enum class Order {
        kSame,
        kTransposed,   // of a Conv1D: (in, out) in the file, (out, in) here
        kRotaryHalves  // row h * D + s * D/2 + j of the file (s 0 or 1, D head_dim) is row h * D + 2 * j + s here
    };

    std::string name = {};
    Shape shape = {};  // in the file
    Order order = Order::kSame;
    int64_t head_dim = 0;  // of kRotaryHalves

    /// Of the parameter.
    int64_t num_rows() const { return order == Order::kTransposed ? shape[1] : shape[0]; }
};

/// A parameter of ours: the rows of its tensors, one below the other. Rows after those are padding: zero, and in no
/// file.
struct HfParameter {
    std::string name = {};
    Shape shape = {};
    std::vector<HfTensor> tensors = {};
};

/// An HfModel that such a table describes.
class HfLayoutModel : public HfModel {
 public:
    HfLayoutModel(int num_layers, std::vector<HfParameter> layout);

    int num_layers() const override { return num_layers_; }
    const std::vector<NamedShape>& parameters() const override { return parameters_; }
    std::vector<NamedShape> TensorsOf(const std::string& parameter) const override;
    void Convert(const std::string& parameter, size_t index, std::span<const float> values,
                 std::span<float> hf_values) const override;

 private:
    const HfParameter& At(const std::string& parameter) const;

    int num_layers_ = 0;
    std::vector<NamedShape> parameters_;
    std::map<std::string, HfParameter> layout_;
};

}  // namespace infini_train::checkpoint
