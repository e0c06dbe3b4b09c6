#include <memory>
#include <utility>

#include "example/common/load_weights.h"
#include "example/common/model.h"
#include "example/gpt2/config.h"
#include "example/gpt2/net.h"
#include "infini_train/include/checkpoint/llmc_gpt2.h"

namespace infini_train::gpt2 {
namespace {

Model MakeModel(const ProgramOptions& options, const Device& device) {
    std::unique_ptr<checkpoint::LlmcGpt2File> file;
    if (!options.llmc_filepath.empty()) {
        file = std::make_unique<checkpoint::LlmcGpt2File>(checkpoint::OpenLlmcGpt2(options.llmc_filepath));
    }
    Gpt2Config config = file != nullptr ? ConfigOf(file->header) : NamedConfig(options.model);
    config.dropout = options.dropout;
    config.recompute = options.recompute;
    auto position = std::make_shared<nn::DropoutPosition>();
    auto net = std::make_shared<Gpt2>(
        config, LayerRange{.begin = 0, .end = config.num_layers, .num_layers = config.num_layers}, position, device);
    if (file != nullptr) {
        LoadWeights(file->weights, *net);
    } else {
        net->Initialize(options.seed);
    }
    return {.name = file != nullptr ? "gpt2 " + options.llmc_filepath : "gpt2 " + options.model,
            .net = std::move(net),
            .dropout_position = std::move(position),
            .block_size = config.block_size,
            .vocab_size = config.vocab_size};
}

}  // namespace
}  // namespace infini_train::gpt2

int main(int argc, char** argv) {
    return infini_train::RunProgram(argc, argv, infini_train::gpt2::MakeModel);
}
