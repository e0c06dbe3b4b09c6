#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "example/common/load_weights.h"
#include "example/common/model.h"
#include "example/llama3/config.h"
#include "example/llama3/net.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"

namespace infini_train::llama3 {
namespace {

Model MakeModel(const ProgramOptions& options, const Device& device) {
    std::unique_ptr<checkpoint::LlmcLlama3File> file;
    std::vector<std::string> notes;
    if (!options.llmc_filepath.empty()) {
        file = std::make_unique<checkpoint::LlmcLlama3File>(checkpoint::OpenLlmcLlama3(options.llmc_filepath));
        notes = file->header.notes;
    }
    Llama3Config config =
        file != nullptr ? ConfigOf(file->header, options.rope_scaling_factor) : NamedConfig(options.model);
    config.dropout = options.dropout;
    config.recompute = options.recompute;
    auto position = std::make_shared<nn::DropoutPosition>();
    auto net = std::make_shared<Llama3>(
        config, LayerRange{.begin = 0, .end = config.num_layers, .num_layers = config.num_layers}, position, device);
    if (file != nullptr) {
        LoadWeights(file->weights, *net);
    } else {
        net->Initialize(options.seed);
    }
    return {.name = file != nullptr ? "llama3 " + options.llmc_filepath : "llama3 " + options.model,
            .notes = std::move(notes),
            .net = std::move(net),
            .dropout_position = std::move(position),
            .block_size = config.block_size,
            .vocab_size = config.vocab_size};
}

}  // namespace
}  // namespace infini_train::llama3

int main(int argc, char** argv) {
    return infini_train::RunProgram(argc, argv, infini_train::llama3::MakeModel);
}
