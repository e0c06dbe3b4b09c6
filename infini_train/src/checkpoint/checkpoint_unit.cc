#include "infini_train/src/checkpoint/checkpoint_unit.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/checkpoint/safetensors_writer.h"
#include "infini_train/src/checkpoint/canonical_json.h"

namespace infini_train::checkpoint {
namespace {

constexpr std::string_view kMomentFilePrefix = "optimizer-";

/// "h.12.ln_1.weight" -> 12
std::optional<size_t> LayerOf(const std::string& name) {
    if (!name.starts_with("h.")) {
        return std::nullopt;
    }
    return static_cast<size_t>(std::atoll(name.c_str() + 2));
}

std::string FileName(std::string_view prefix, size_t unit, size_t num_units) {
    char place[64] = {};
    std::snprintf(place, sizeof(place), "%05zu-of-%05zu.safetensors", unit + 1, num_units);
    return std::string(prefix) + place;
}

}  // namespace

std::vector<std::vector<NamedShape>> UnitsOf(const HfModel& model) {
    const auto num_layers = static_cast<size_t>(model.num_layers());
    std::vector<std::vector<NamedShape>> units(num_layers + 2);
    size_t unit = 0;
    for (const NamedShape& parameter : model.parameters()) {
        const std::optional<size_t> layer = LayerOf(parameter.name);
        CHECK(!layer.has_value() || *layer < num_layers) << parameter.name << " of " << num_layers << " layers";
        if (layer.has_value()) {
            unit = *layer + 1;
        } else if (unit != 0) {
            unit = num_layers + 1;
        }
        units[unit].push_back(parameter);
    }
    return units;
}

std::string ModelFileName(size_t unit, size_t num_units) {
    return FileName("model-", unit, num_units);
}

std::string MomentFileName(size_t unit, size_t num_units) {
    return FileName(kMomentFilePrefix, unit, num_units);
}

bool IsMomentFileName(const std::string& name) {
    return name.starts_with(kMomentFilePrefix) && name.ends_with(".safetensors");
}

std::string MomentTensorName(const std::string& moment, const std::string& parameter) {
    return moment + "." + parameter;
}

std::string IndexJson(const HfModel& model) {
    const std::vector<std::vector<NamedShape>> units = UnitsOf(model);
    uint64_t total_size = 0;
    std::map<std::string, std::string> file_of_tensor;
    for (size_t unit = 0; unit < units.size(); ++unit) {
        for (const NamedShape& parameter : units[unit]) {
            for (const NamedShape& tensor : model.TensorsOf(parameter.name)) {
                file_of_tensor[tensor.name] = ModelFileName(unit, units.size());
                total_size += static_cast<uint64_t>(NumElements(tensor.shape)) * sizeof(float);
            }
        }
    }
    return CanonicalText({{"metadata", {{"total_size", total_size}}}, {"weight_map", file_of_tensor}});
}

CheckpointUnit::CheckpointUnit(size_t index, size_t num_units, std::vector<Parameter> parameters)
    : index_(index), num_units_(num_units), parameters_(std::move(parameters)) {
    const Device host = MakeCpuDevice();
    const auto make_room = [&](const Tensor& tensor) {
        CHECK(tensor.dtype() == DataType::kFloat32) << Name(tensor.dtype());
        taken_[&tensor] = Tensor::Zeros(tensor.shape(), DataType::kFloat32, host);
    };
    for (const Parameter& parameter : parameters_) {
        CHECK(parameter.values->shape() == parameter.parameter.shape)
            << parameter.parameter.name << " is " << ToString(parameter.values->shape()) << ", in the files "
            << ToString(parameter.parameter.shape);
        make_room(*parameter.values);
        for (const auto& [name, moment] : parameter.moments) {
            make_room(*moment);
        }
    }
}

void CheckpointUnit::Take() {
    for (const auto& [tensor, copy] : taken_) {
        CopyToHost(*tensor, copy->data<float>());
    }
}

std::span<const float> CheckpointUnit::TakenOf(const Tensor& tensor) const {
    const Tensor& taken = *taken_.at(&tensor);
    return {taken.data<float>(), static_cast<size_t>(taken.num_elements())};
}

ManifestFiles CheckpointUnit::Write(const HfModel& model, const std::string& folder) const {
    ManifestFiles files = {WriteModel(model, folder)};
    const bool has_moments = std::any_of(parameters_.begin(), parameters_.end(),
                                         [](const Parameter& parameter) { return !parameter.moments.empty(); });
    if (has_moments) {
        files.push_back(WriteMoments(folder));
    }
    return files;
}

ManifestFile CheckpointUnit::WriteModel(const HfModel& model, const std::string& folder) const {
    struct Source {
        const Parameter* parameter = nullptr;
        size_t index = 0;  // among the tensors of the parameter
    };
    std::vector<SafetensorsWriter::Tensor> tensors;
    std::map<std::string, Source> source_of_tensor;
    for (const Parameter& parameter : parameters_) {
        const std::vector<NamedShape> stored = model.TensorsOf(parameter.parameter.name);
        for (size_t index = 0; index < stored.size(); ++index) {
            tensors.push_back({.name = stored[index].name, .shape = stored[index].shape});
            source_of_tensor[stored[index].name] = {.parameter = &parameter, .index = index};
        }
    }
    const std::string name = ModelFileName(index_, num_units_);
    SafetensorsWriter writer(folder + "/" + name, std::move(tensors));
    std::vector<float> hf_values;
    for (const SafetensorsWriter::Tensor& tensor : writer.tensors()) {
        const Source& source = source_of_tensor.at(tensor.name);
        hf_values.resize(static_cast<size_t>(NumElements(tensor.shape)));
        model.Convert(source.parameter->parameter.name, source.index, TakenOf(*source.parameter->values), hf_values);
        writer.Append(hf_values);
    }
    writer.Commit();
    return Describe(folder, name);
}

ManifestFile CheckpointUnit::WriteMoments(const std::string& folder) const {
    std::vector<SafetensorsWriter::Tensor> tensors;
    std::map<std::string, const Tensor*> moment_of_tensor;
    for (const Parameter& parameter : parameters_) {
        for (const auto& [name, moment] : parameter.moments) {
            tensors.push_back({.name = MomentTensorName(name, parameter.parameter.name), .shape = moment->shape()});
            moment_of_tensor[tensors.back().name] = moment.get();
        }
    }
    const std::string name = MomentFileName(index_, num_units_);
    SafetensorsWriter writer(folder + "/" + name, std::move(tensors));
    for (const SafetensorsWriter::Tensor& tensor : writer.tensors()) {
        writer.Append(TakenOf(*moment_of_tensor.at(tensor.name)));
    }
    writer.Commit();
    return Describe(folder, name);
}

}  // namespace infini_train::checkpoint
