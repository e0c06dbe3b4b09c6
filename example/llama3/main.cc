#include <memory>
#include <string>
#include <vector>

#include "example/common/model.h"
#include "example/llama3/config.h"
#include "example/llama3/net.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"

namespace infini_train::llama3 {
namespace {

ModelSpec MakeModel(const ProgramOptions& options) {
    std::shared_ptr<const checkpoint::LlmcLlama3File> file;
    if (!options.llmc_filepath.empty()) {
        file = std::make_shared<checkpoint::LlmcLlama3File>(checkpoint::OpenLlmcLlama3(options.llmc_filepath));
    }
    Llama3Config config =
        file != nullptr ? ConfigOf(file->header, options.rope_scaling_factor) : NamedConfig(options.model);
    config.dropout = options.dropout;
    config.recompute = options.recompute;
    config.deterministic_attention = !options.nondeterministic;
    return {
        .name = file != nullptr ? "llama3 " + options.llmc_filepath : "llama3 " + options.model,
        .notes = file != nullptr ? file->header.notes : std::vector<std::string>{},
        .weights = file == nullptr ? nullptr : std::shared_ptr<const checkpoint::WeightSource>(file, &file->weights),
        .num_layers = config.num_layers,
        .num_channels = config.num_channels,
        .block_size = config.block_size,
        .vocab_size = config.vocab_size,
        .build = [config](const nn::parallel::LayerRange& layers, const std::shared_ptr<nn::DropoutPosition>& position,
                          const Device& device) { return std::make_shared<Llama3>(config, layers, position, device); }};
}

}  // namespace
}  // namespace infini_train::llama3

int main(int argc, char** argv) {
    return infini_train::RunProgram(argc, argv, infini_train::llama3::MakeModel);
}
