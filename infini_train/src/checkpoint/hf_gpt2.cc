#include "infini_train/include/checkpoint/hf_gpt2.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/hf_config.h"
#include "infini_train/src/checkpoint/hf_weights.h"
#include "infini_train/src/checkpoint/llmc_header.h"
#include "infini_train/src/checkpoint/llmc_layout.h"

namespace infini_train::checkpoint {
namespace {

constexpr char kPrefix[] = "transformer.";
constexpr float kNormEps = 1e-5f;
constexpr int64_t kVocabMultiple = 128;  // as the writers of llm.c files round it
constexpr int64_t kOpenAiVocab = 50257;  // the last of it ends a text

HfGpt2Config ReadConfig(const HfConfig& json) {
    json.CheckOneOf("model_type", {"gpt2"});
    json.CheckOnly("architectures", nlohmann::json::array({"GPT2LMHeadModel"}));
    if (json.Has("activation_function")) {
        json.CheckOneOf("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
    }
    json.CheckOnly("scale_attn_weights", true);
    json.CheckOnly("scale_attn_by_inverse_layer_idx", false);
    json.CheckOnly("add_cross_attention", false);
    if (json.Has("layer_norm_epsilon") && json.Number("layer_norm_epsilon", 0.0f, 1.0f) != kNormEps) {
        json.Refuse("layer_norm_epsilon", "is not that of the norms here", "1e-05");
    }
    HfGpt2Config config = {.block_size = json.Integer("n_positions", 1, kMaxBlockSize),
                           .vocab_size = json.Integer("vocab_size", 1, kMaxVocabSize - kVocabMultiple),
                           .num_layers = json.Integer("n_layer", 1, kMaxLayers),
                           .num_heads = json.Integer("n_head", 1, kMaxChannels),
                           .num_channels = json.Integer("n_embd", 1, kMaxChannels)};
    json.CheckOnly("n_inner", 4 * config.num_channels);
    if (config.num_channels % config.num_heads != 0) {
        json.Refuse("n_head", "does not divide the channels", StrCat("a divisor of n_embd ", config.num_channels));
    }
    config.padded_vocab_size = json.Has("padded_vocab_size")
                                   ? json.Integer("padded_vocab_size", config.vocab_size, kMaxVocabSize)
                                   : (config.vocab_size + kVocabMultiple - 1) / kVocabMultiple * kVocabMultiple;
    return config;
}

std::vector<HfParameter> LayoutOf(const HfGpt2Config& config, const std::string& prefix, const std::string& embedding) {
    return MakeHfParameters(
        Gpt2Layout(LlmcHeaderOf(config, DataType::kFloat32)),
        [&](const LlmcLayout::Tensor& tensor, int64_t layer) -> std::vector<HfTensor> {
            if (tensor.name == "wte.weight") {
                return {{.name = embedding, .shape = {config.vocab_size, config.num_channels}}};
            }
            const std::string name =
                tensor.is_per_layer ? StrCat(prefix, "h.", layer, ".", tensor.name) : StrCat(prefix, tensor.name);
            if (tensor.is_per_layer && tensor.shape.size() == 2) {
                return {
                    {.name = name, .shape = {tensor.shape[1], tensor.shape[0]}, .order = HfTensor::Order::kTransposed}};
            }
            return {{.name = name, .shape = tensor.shape}};
        });
}

}  // namespace

HfGpt2Config HfConfigOf(const LlmcGpt2Header& header) {
    return {.block_size = header.block_size,
            .vocab_size = header.vocab_size,
            .padded_vocab_size = header.padded_vocab_size,
            .num_layers = header.num_layers,
            .num_heads = header.num_heads,
            .num_channels = header.num_channels};
}

LlmcGpt2Header LlmcHeaderOf(const HfGpt2Config& config, DataType dtype) {
    return {.block_size = config.block_size,
            .vocab_size = config.vocab_size,
            .padded_vocab_size = config.padded_vocab_size,
            .num_layers = config.num_layers,
            .num_heads = config.num_heads,
            .num_channels = config.num_channels,
            .dtype = dtype};
}

HfGpt2::HfGpt2(const HfGpt2Config& config)
    : HfLayoutModel(static_cast<int>(config.num_layers), LayoutOf(config, "", "wte.weight")), config_(config) {}

std::string HfGpt2::ConfigJson() const {
    nlohmann::ordered_json json = {{"architectures", nlohmann::json::array({"GPT2LMHeadModel"})},
                                   {"model_type", "gpt2"},
                                   {"vocab_size", config_.vocab_size},
                                   {"padded_vocab_size", config_.padded_vocab_size},
                                   {"n_positions", config_.block_size},
                                   {"n_ctx", config_.block_size},
                                   {"n_embd", config_.num_channels},
                                   {"n_layer", config_.num_layers},
                                   {"n_head", config_.num_heads},
                                   {"activation_function", "gelu_new"},
                                   {"layer_norm_epsilon", ShortestDecimal(kNormEps)},
                                   {"embd_pdrop", 0.0},
                                   {"resid_pdrop", 0.0},
                                   {"attn_pdrop", 0.0},
                                   {"tie_word_embeddings", true}};
    // Without these keys a reader takes the ids of OpenAI's vocabulary.
    for (const char* key : {"bos_token_id", "eos_token_id"}) {
        json[key] = nullptr;
        if (config_.vocab_size == kOpenAiVocab) {
            json[key] = kOpenAiVocab - 1;
        }
    }
    return json.dump(2) + "\n";
}

HfGpt2Folder OpenHfGpt2(const std::string& folder) {
    const HfConfig json(folder);
    const HfGpt2Config config = ReadConfig(json);
    HfTensors tensors(folder);
    const bool has_prefix = std::any_of(tensors.file_of_tensor().begin(), tensors.file_of_tensor().end(),
                                        [](const auto& named_file) { return named_file.first.starts_with(kPrefix); });
    const std::string prefix = has_prefix ? kPrefix : "";
    const HfHead head =
        FindHead(tensors, prefix + "wte.weight", json.Bool("tie_word_embeddings"), /*can_differ=*/false);
    return {.config = config,
            .weights = std::make_shared<HfWeights>(std::move(tensors), LayoutOf(config, prefix, head.embedding), head)};
}

}  // namespace infini_train::checkpoint
