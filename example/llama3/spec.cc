#include "example/llama3/spec.h"

#include <memory>
#include <string>
#include <vector>

#include "example/llama3/config.h"
#include "example/llama3/net.h"
#include "infini_train/include/checkpoint/hf_llama.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"

namespace infini_train::llama3 {
namespace {

struct Start {
    Llama3Config config = {};
    std::shared_ptr<const checkpoint::WeightSource> weights = nullptr;  // null: initial values
    std::vector<std::string> notes = {};
};

Start OpenStart(const ProgramOptions& options) {
    if (!options.llmc_filepath.empty()) {
        const auto file =
            std::make_shared<const checkpoint::LlmcLlama3File>(checkpoint::OpenLlmcLlama3(options.llmc_filepath));
        return {.config = ConfigOf(file->header, options.rope_scaling_factor),
                .weights = std::shared_ptr<const checkpoint::WeightSource>(file, &file->weights),
                .notes = file->header.notes};
    }
    // A checkpoint is such a folder, too.
    const std::string& folder = options.hf_dir.empty() ? options.load : options.hf_dir;
    if (!folder.empty()) {
        const checkpoint::HfLlamaFolder files = checkpoint::OpenHfLlama(folder);
        return {.config = ConfigOf(files.config), .weights = files.weights};
    }
    return {.config = NamedConfig(options.model)};
}

}  // namespace

ModelSpec MakeModel(const ProgramOptions& options) {
    const Start start = OpenStart(options);
    Llama3Config config = start.config;
    config.dropout = options.dropout;
    config.recompute = options.recompute;
    config.deterministic_attention = !options.nondeterministic;
    return {
        .name = "llama3 " + options.model + options.llmc_filepath + options.hf_dir + options.load,  // one of them
        .notes = start.notes,
        .weights = start.weights,
        .hf = std::make_shared<checkpoint::HfLlama>(HfConfigOf(config)),
        .num_layers = config.num_layers,
        .num_channels = config.num_channels,
        .block_size = config.block_size,
        .vocab_size = config.vocab_size,
        .build = [config](const nn::parallel::LayerRange& layers, const std::shared_ptr<nn::DropoutPosition>& position,
                          const Device& device) { return std::make_shared<Llama3>(config, layers, position, device); }};
}

}  // namespace infini_train::llama3
