#include "example/gpt2/spec.h"

#include <memory>
#include <string>

#include "example/gpt2/config.h"
#include "example/gpt2/net.h"
#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "infini_train/include/checkpoint/llmc_gpt2.h"

namespace infini_train::gpt2 {
namespace {

struct Start {
    Gpt2Config config = {};
    std::shared_ptr<const checkpoint::WeightSource> weights = nullptr;  // null: initial values
};

Start OpenStart(const ProgramOptions& options) {
    if (!options.llmc_filepath.empty()) {
        const auto file =
            std::make_shared<const checkpoint::LlmcGpt2File>(checkpoint::OpenLlmcGpt2(options.llmc_filepath));
        return {.config = ConfigOf(file->header),
                .weights = std::shared_ptr<const checkpoint::WeightSource>(file, &file->weights)};
    }
    // A checkpoint is such a folder, too.
    const std::string& folder = options.hf_dir.empty() ? options.load : options.hf_dir;
    if (!folder.empty()) {
        const checkpoint::HfGpt2Folder files = checkpoint::OpenHfGpt2(folder);
        return {.config = ConfigOf(files.config), .weights = files.weights};
    }
    return {.config = NamedConfig(options.model)};
}

}  // namespace

ModelSpec MakeModel(const ProgramOptions& options) {
    const Start start = OpenStart(options);
    Gpt2Config config = start.config;
    config.dropout = options.dropout;
    config.recompute = options.recompute;
    config.deterministic_attention = !options.nondeterministic;
    return {
        .name = "gpt2 " + options.model + options.llmc_filepath + options.hf_dir + options.load,  // one of them
        .weights = start.weights,
        .hf = std::make_shared<checkpoint::HfGpt2>(HfConfigOf(config)),
        .num_layers = config.num_layers,
        .num_channels = config.num_channels,
        .block_size = config.block_size,
        .vocab_size = config.vocab_size,
        .build = [config](const nn::parallel::LayerRange& layers, const std::shared_ptr<nn::DropoutPosition>& position,
                          const Device& device) { return std::make_shared<Gpt2>(config, layers, position, device); }};
}

}  // namespace infini_train::gpt2
