#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/checkpoint_writer.h"
#include "infini_train/include/checkpoint/hf_model.h"
#include "infini_train/include/checkpoint/safetensors.h"
#include "infini_train/include/comm/run_ranks.h"
#include "infini_train/include/core/random.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/optimizer/adamw.h"

// A training that only changes its numbers: what a checkpoint must hold is known at every moment.

namespace infini_train::checkpoint::test {

/// Two layers between an embedding and a norm. In the files the names begin with "hf." and h.*.a is cut after its first
/// row.
class ToyHf : public HfModel {
 public:
    std::string ConfigJson() const override { return "{}\n"; }
    int num_layers() const override { return 2; }
    const std::vector<NamedShape>& parameters() const override { return parameters_; }
    std::vector<NamedShape> TensorsOf(const std::string& parameter) const override {
        if (parameter.ends_with(".a")) {
            return {{.name = "hf." + parameter + "0", .shape = {1, 4}},
                    {.name = "hf." + parameter + "1", .shape = {2, 4}}};
        }
        const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                        [&](const NamedShape& known) { return known.name == parameter; });
        return {{.name = "hf." + parameter, .shape = found->shape}};
    }
    void Convert(const std::string&, size_t index, std::span<const float> values,
                 std::span<float> hf_values) const override {
        before_convert();
        std::copy_n(values.begin() + (index == 0 ? 0 : 4), hf_values.size(), hf_values.begin());
    }

    std::function<void()> before_convert = [] {};

 private:
    std::vector<NamedShape> parameters_ = {{.name = "wte", .shape = {5, 3}}, {.name = "h.0.a", .shape = {3, 4}},
                                           {.name = "h.0.b", .shape = {7}},  {.name = "h.1.a", .shape = {3, 4}},
                                           {.name = "h.1.b", .shape = {7}},  {.name = "ln_f", .shape = {1}}};
};

class ToyModule : public nn::Module {
 public:
    ToyModule(const std::vector<NamedShape>& parameters, const Device& device) : slots_(parameters.size()) {
        for (size_t i = 0; i < parameters.size(); ++i) {
            slots_[i] = Tensor::Zeros(parameters[i].shape, DataType::kFloat32, device);
            RegisterParameter(parameters[i].name, &slots_[i]);
        }
    }
    TensorList Forward(const TensorList& inputs) override { return inputs; }

 private:
    std::vector<nn::ParameterSlot> slots_;
};

/// What a tensor holds at a moment: random numbers of its own.
inline std::vector<float> ToyValues(const std::string& name, int64_t moment, int64_t num_elements) {
    const RandomStream stream = {.seed = std::hash<std::string>()(name), .stream = static_cast<uint64_t>(moment)};
    std::vector<float> values;
    for (int64_t i = 0; i < num_elements; ++i) {
        values.push_back(static_cast<float>(Normal(stream, static_cast<uint64_t>(i))));
    }
    return values;
}

/// A rank's part of such a training: all parameters, or those with the given indices.
struct ToyTraining {
    explicit ToyTraining(const comm::Mesh& mesh, const std::vector<size_t>& indices = {0, 1, 2, 3, 4, 5})
        : world(mesh.world) {
        std::vector<NamedShape> parameters;
        for (const size_t index : indices) {
            parameters.push_back(hf->parameters()[index]);
        }
        chunks = {std::make_shared<ToyModule>(parameters, mesh.device)};
        optimizer = std::make_shared<optimizers::AdamW>(chunks[0]->Parameters(), optimizers::AdamW::Options{});
    }

    std::unique_ptr<CheckpointWriter> MakeWriter(const std::string& folder, int keep = 0) const {
        return std::make_unique<CheckpointWriter>(CheckpointWriter::Options{.folder = folder, .keep = keep}, hf, chunks,
                                                  optimizer, world);
    }
    void SetMoment(int64_t moment) const {
        const std::vector<nn::NamedParameter> parameters = chunks[0]->NamedParameters();
        for (size_t i = 0; i < parameters.size(); ++i) {
            Set(parameters[i].name, moment, *parameters[i].tensor);
            for (const optimizers::Moments& moments : optimizer->moments()) {
                Set(moments.name + "." + parameters[i].name, moment, *moments.tensors[i]);
            }
        }
        optimizer->set_step(moment);
    }
    /// The checkpoint of a step with the numbers of a moment.
    CheckpointWriter::Result Save(CheckpointWriter& writer, int64_t step, int64_t moment) const {
        SetMoment(moment);
        writer.Begin(StateOf(step, moment));
        return writer.Commit();
    }
    static TrainingState StateOf(int64_t step, int64_t moment) {
        return {.step = step,
                .optimizer = "adamw",
                .seed = ~uint64_t{0},
                .position = {.epoch = 1, .row = moment},
                .settings = {{"moment", std::to_string(moment)}, {"text", "\"\n\xc3\xa9"}}};
    }

    std::shared_ptr<ToyHf> hf = std::make_shared<ToyHf>();
    std::shared_ptr<comm::ProcessGroup> world;
    std::vector<std::shared_ptr<nn::Module>> chunks;
    std::shared_ptr<optimizers::Optimizer> optimizer;

 private:
    static void Set(const std::string& name, int64_t moment, Tensor& tensor) {
        CopyFromHost(ToyValues(name, moment, tensor.num_elements()).data(), tensor);
    }
};

/// What one rank alone does.
inline void Alone(const std::function<void(const ToyTraining&)>& rank_main) {
    comm::RunRanks({}, [&](const comm::Mesh& mesh) { rank_main(ToyTraining(mesh)); });
}

/// What is not as it was at this moment in the weights and moments of a checkpoint; "" when nothing is.
inline std::string DifferenceFrom(int64_t moment, const std::string& folder) {
    const ToyHf hf;
    std::map<std::string, std::vector<float>> wanted;
    for (const auto& [name, shape] : hf.parameters()) {
        const std::vector<float> values = ToyValues(name, moment, NumElements(shape));
        const std::vector<NamedShape> tensors = hf.TensorsOf(name);
        for (size_t i = 0; i < tensors.size(); ++i) {
            std::vector<float> stored(static_cast<size_t>(NumElements(tensors[i].shape)));
            hf.Convert(name, i, values, stored);
            wanted[tensors[i].name] = stored;
        }
        for (const std::string& tensor : {"m." + name, "v." + name}) {
            wanted[tensor] = ToyValues(tensor, moment, NumElements(shape));
        }
    }
    std::vector<WeightFile> files = OpenShardedSafetensors(folder + "/model.safetensors.index.json");
    for (int unit = 1; unit <= 4; ++unit) {
        files.push_back(OpenSafetensors(folder + "/optimizer-0000" + std::to_string(unit) + "-of-00004.safetensors"));
    }
    for (const WeightFile& file : files) {
        for (const std::string& name : file.names()) {
            std::vector<float> values(static_cast<size_t>(NumElements(file.shape(name))));
            file.Read(name, values.data());
            if (wanted[name] != values) {
                return file.path() + ": " + name;
            }
            wanted.erase(name);
        }
    }
    return wanted.empty() ? "" : "no " + wanted.begin()->first;
}

}  // namespace infini_train::checkpoint::test
