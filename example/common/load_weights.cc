#include "example/common/load_weights.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/nn/state_dict.h"

namespace infini_train {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;  // bounds the host's part of a tensor on a device

void ReadTensor(const checkpoint::WeightSource& file, const std::string& name, Tensor& values) {
    const int64_t num_rows = values.dim(0);
    const int64_t row_elements = num_rows == 0 ? 1 : values.num_elements() / num_rows;
    const int64_t chunk_rows = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, row_elements));
    std::vector<float> chunk;
    for (int64_t begin = 0; begin < num_rows; begin += chunk_rows) {
        const int64_t end = std::min(begin + chunk_rows, num_rows);
        chunk.resize(static_cast<size_t>((end - begin) * row_elements));
        file.ReadRows(name, begin, end, chunk.data());
        CopyFromHost(chunk.data(), *values.Slice(begin, end));
    }
}

}  // namespace

void LoadWeights(const checkpoint::WeightSource& file, const nn::Module& module) {
    for (const auto& [name, values] : nn::StateDict(module)) {
        if (!file.Contains(name)) {
            throw Error({.where = file.path(), .what = "has no tensor " + name});
        }
        if (file.shape(name) != values->shape()) {
            throw Error({.where = file.path(),
                         .what = "tensor " + name + " has another shape",
                         .got = ToString(file.shape(name)),
                         .wanted = ToString(values->shape())});
        }
        ReadTensor(file, name, *values);
    }
    for (const nn::NamedParameter& parameter : module.NamedParameters()) {
        nn::RefreshFromMaster(*parameter.tensor);
    }
}

std::vector<std::shared_ptr<nn::Module>> LoadChunks(const ProgramOptions& options, const PipelineSetup& setup,
                                                    const ModelSpec& model,
                                                    const std::shared_ptr<nn::DropoutPosition>& position,
                                                    const comm::Mesh& mesh) {
    if (!options.load.empty()) {
        checkpoint::VerifyChecksums(options.load, mesh.rank, mesh.shape.num_ranks());
    }
    std::vector<std::shared_ptr<nn::Module>> chunks =
        BuildChunks(setup, model, mesh.position.pipeline, position, mesh.device);
    for (const std::shared_ptr<nn::Module>& chunk : chunks) {
        if (model.weights != nullptr) {
            LoadWeights(*model.weights, *chunk);
        } else {
            chunk->Initialize(options.seed);
        }
        chunk->To(options.dtype);
    }
    return chunks;
}

}  // namespace infini_train
