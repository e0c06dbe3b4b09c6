#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "infini_train/include/checkpoint/hf_model.h"
#include "infini_train/include/core/tensor.h"
#include "infini_train/src/checkpoint/manifest.h"

namespace infini_train::checkpoint {

/// The parameters of a model in the units that have files of their own, whoever holds them: what comes before the
/// layers, each layer, what comes after them.
std::vector<std::vector<NamedShape>> UnitsOf(const HfModel& model);

/// "model-00002-of-00010.safetensors" for unit 1 of 10
std::string ModelFileName(size_t unit, size_t num_units);
std::string MomentFileName(size_t unit, size_t num_units);
bool IsMomentFileName(const std::string& name);
/// "m.h.0.attn.c_attn.weight"
std::string MomentTensorName(const std::string& moment, const std::string& parameter);
/// The text of model.safetensors.index.json.
std::string IndexJson(const HfModel& model);

/// A unit that a rank writes: its tensors, and a copy of them on the host as they were at one moment.
class CheckpointUnit {
 public:
    struct Parameter {
        NamedShape parameter = {};
        std::shared_ptr<Tensor> values = nullptr;                     // float32
        std::map<std::string, std::shared_ptr<Tensor>> moments = {};  // by name, in the shape of the parameter
    };
    /// Takes the memory for the copy, and touches it: a first touch takes ten times as long as the copy.
    CheckpointUnit(size_t index, size_t num_units, std::vector<Parameter> parameters);

    /// Copies the values.
    void Take();
    /// Writes the file of the values as they were taken, and another one if there are moments.
    ManifestFiles Write(const HfModel& model, const std::string& folder) const;

 private:
    std::span<const float> TakenOf(const Tensor& tensor) const;
    ManifestFile WriteModel(const HfModel& model, const std::string& folder) const;
    ManifestFile WriteMoments(const std::string& folder) const;

    size_t index_;
    size_t num_units_;
    std::vector<Parameter> parameters_;
    std::map<const Tensor*, std::shared_ptr<Tensor>> taken_;  // on the host, by the tensor that it is a copy of
};

}  // namespace infini_train::checkpoint
