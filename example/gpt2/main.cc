#include <memory>

#include "example/common/model.h"
#include "example/gpt2/config.h"
#include "example/gpt2/net.h"
#include "infini_train/include/checkpoint/llmc_gpt2.h"

namespace infini_train::gpt2 {
namespace {

ModelSpec MakeModel(const ProgramOptions& options) {
    std::shared_ptr<const checkpoint::LlmcGpt2File> file;
    if (!options.llmc_filepath.empty()) {
        file = std::make_shared<checkpoint::LlmcGpt2File>(checkpoint::OpenLlmcGpt2(options.llmc_filepath));
    }
    Gpt2Config config = file != nullptr ? ConfigOf(file->header) : NamedConfig(options.model);
    config.dropout = options.dropout;
    config.recompute = options.recompute;
    config.deterministic_attention = !options.nondeterministic;
    return {
        .name = file != nullptr ? "gpt2 " + options.llmc_filepath : "gpt2 " + options.model,
        .weights = file == nullptr ? nullptr : std::shared_ptr<const checkpoint::WeightSource>(file, &file->weights),
        .num_layers = config.num_layers,
        .num_channels = config.num_channels,
        .block_size = config.block_size,
        .vocab_size = config.vocab_size,
        .build = [config](const nn::parallel::LayerRange& layers, const std::shared_ptr<nn::DropoutPosition>& position,
                          const Device& device) { return std::make_shared<Gpt2>(config, layers, position, device); }};
}

}  // namespace
}  // namespace infini_train::gpt2

int main(int argc, char** argv) {
    return infini_train::RunProgram(argc, argv, infini_train::gpt2::MakeModel);
}
