#pragma once

#include <span>
#include <string>
#include <vector>

#include "infini_train/include/core/shape.h"

namespace infini_train::checkpoint {

/// A tensor, as it is named and laid out in somebody's files.
struct NamedShape {
    std::string name;
    Shape shape;
};

/// How a model of one family is written in Hugging Face's format: its config.json, and the names, shapes and order of
/// rows of its tensors. Parameters are those of our state dicts, of the whole model.
class HfModel {
 public:
    HfModel() = default;
    HfModel(const HfModel&) = delete;
    HfModel& operator=(const HfModel&) = delete;
    virtual ~HfModel() = default;

    /// The text of config.json, from which the model can be built again.
    virtual std::string ConfigJson() const = 0;
    virtual int num_layers() const = 0;
    /// All parameters, each once, in the order of the model: a tied head is not among them.
    virtual const std::vector<NamedShape>& parameters() const = 0;
    /// What a parameter is stored as: one tensor, or several (q, k and v of a LLaMA's c_attn).
    virtual std::vector<NamedShape> TensorsOf(const std::string& parameter) const = 0;
    /// The values of TensorsOf(parameter)[index] from those of the parameter; exact.
    virtual void Convert(const std::string& parameter, size_t index, std::span<const float> values,
                         std::span<float> hf_values) const = 0;
};

}  // namespace infini_train::checkpoint
