#include "infini_train/include/checkpoint/hf_llama.h"

#include <map>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/hf_config.h"
#include "infini_train/src/checkpoint/hf_weights.h"
#include "infini_train/src/checkpoint/llmc_header.h"
#include "infini_train/src/checkpoint/llmc_layout.h"

namespace infini_train::checkpoint {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr float kDefaultTheta = 10000.0f;  // of configs from before there was a choice
constexpr float kMaxTheta = 1e12f;
constexpr float kMaxFactor = 1e6f;
constexpr int64_t kLlama3Vocab = 128256;
constexpr int64_t kLlama3BeginOfText = 128000;
constexpr int64_t kLlama3EndOfText = 128001;

/// Our names and theirs, but for c_attn.
const std::map<std::string, std::string> kNames = {
    {"ln_1.weight", "input_layernorm.weight"},
    {"attn.c_proj.weight", "self_attn.o_proj.weight"},
    {"ln_2.weight", "post_attention_layernorm.weight"},
    {"mlp.c_fc.weight", "mlp.up_proj.weight"},
    {"mlp.c_fc2.weight", "mlp.gate_proj.weight"},
    {"mlp.c_proj.weight", "mlp.down_proj.weight"},
    {"ln_f.weight", "norm.weight"},
};

struct Rope {
    float theta = kDefaultTheta;
    std::optional<HfRopeScaling> scaling = std::nullopt;

    bool operator==(const Rope&) const = default;
};

/// What rope_scaling or rope_parameters says.
std::optional<HfRopeScaling> ReadScaling(const HfConfig& json) {
    const std::string key = json.Has("rope_type") ? "rope_type" : "type";  // its older name
    if (!json.Has(key) || json.String(key) == "default") {
        json.CheckOnly("factor", 1.0);
        return std::nullopt;
    }
    json.CheckOneOf(key, {"default", "llama3"});
    const HfRopeScaling scaling = {
        .factor = json.Number("factor", 1.0f, kMaxFactor),
        .low_frequency_factor = json.Number("low_freq_factor", 1.0f / kMaxFactor, kMaxFactor),
        .high_frequency_factor = json.Number("high_freq_factor", 1.0f / kMaxFactor, kMaxFactor),
        .original_positions = json.Integer("original_max_position_embeddings", 1, kMaxBlockSize)};
    if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
        json.Refuse("high_freq_factor", "is too low",
                    StrCat("more than low_freq_factor ", scaling.low_frequency_factor));
    }
    return scaling;
}

Rope ReadRope(const HfConfig& json) {
    Rope rope;
    json.CheckOnly("partial_rotary_factor", 1.0);
    const bool has_theta = json.Has("rope_theta");
    if (has_theta) {
        rope.theta = json.Number("rope_theta", 1.0f, kMaxTheta);
    }
    if (json.Has("rope_scaling")) {
        rope.scaling = ReadScaling(json.Object("rope_scaling"));
    }
    if (json.Has("rope_parameters")) {
        const HfConfig parameters = json.Object("rope_parameters");
        parameters.CheckOnly("partial_rotary_factor", 1.0);
        const Rope newer = {
            .theta = parameters.Has("rope_theta") ? parameters.Number("rope_theta", 1.0f, kMaxTheta) : rope.theta,
            .scaling = ReadScaling(parameters)};
        if ((has_theta && newer.theta != rope.theta) || (json.Has("rope_scaling") && newer.scaling != rope.scaling)) {
            json.Refuse("rope_parameters", "contradicts rope_theta or rope_scaling", "the same numbers in both");
        }
        return newer;
    }
    return rope;
}

void CheckHeads(const HfConfig& json, const HfLlamaConfig& config) {
    if (config.num_channels % config.num_heads != 0) {
        json.Refuse("num_attention_heads", "does not divide the channels",
                    StrCat("a divisor of hidden_size ", config.num_channels));
    }
    if (config.num_heads % config.num_kv_heads != 0) {
        json.Refuse("num_key_value_heads", "does not divide the heads",
                    StrCat("a divisor of num_attention_heads ", config.num_heads));
    }
    const int64_t head_dim = config.num_channels / config.num_heads;
    json.CheckOnly("head_dim", head_dim);
    if (head_dim % 2 != 0) {
        json.Refuse("num_attention_heads", "gives heads of an odd dimension, which have no rotary pairs",
                    StrCat("hidden_size ", config.num_channels, " / num_attention_heads even"));
    }
}

/// All but tied_head, which depends on the tensors too.
HfLlamaConfig ReadConfig(const HfConfig& json) {
    json.CheckOneOf("model_type", {"llama"});
    json.CheckOnly("architectures", nlohmann::json::array({"LlamaForCausalLM"}));
    json.CheckOnly("hidden_act", "silu");
    json.CheckOnly("attention_bias", false);
    json.CheckOnly("mlp_bias", false);
    const Rope rope = ReadRope(json);
    const int64_t num_heads = json.Integer("num_attention_heads", 1, kMaxChannels);
    const HfLlamaConfig config = {.block_size = json.Integer("max_position_embeddings", 1, kMaxBlockSize),
                                  .vocab_size = json.Integer("vocab_size", 1, kMaxVocabSize),
                                  .num_layers = json.Integer("num_hidden_layers", 1, kMaxLayers),
                                  .num_heads = num_heads,
                                  .num_kv_heads = json.Has("num_key_value_heads")
                                                      ? json.Integer("num_key_value_heads", 1, kMaxChannels)
                                                      : num_heads,
                                  .num_channels = json.Integer("hidden_size", 1, kMaxChannels),
                                  .hidden_size = json.Integer("intermediate_size", 1, kMaxVocabSize),
                                  .norm_eps = json.Number("rms_norm_eps", 1e-12f, 1.0f),
                                  .rope_theta = rope.theta,
                                  .rope_scaling = rope.scaling};
    CheckHeads(json, config);
    return config;
}

std::vector<HfTensor> AttentionTensors(const HfLlamaConfig& config, const std::string& prefix) {
    const int64_t head_dim = config.num_channels / config.num_heads;
    const Shape kv_shape = {config.num_kv_heads * head_dim, config.num_channels};
    return {{.name = prefix + "self_attn.q_proj.weight",
             .shape = {config.num_channels, config.num_channels},
             .order = HfTensor::Order::kRotaryHalves,
             .head_dim = head_dim},
            {.name = prefix + "self_attn.k_proj.weight",
             .shape = kv_shape,
             .order = HfTensor::Order::kRotaryHalves,
             .head_dim = head_dim},
            {.name = prefix + "self_attn.v_proj.weight", .shape = kv_shape}};
}

std::vector<HfParameter> LayoutOf(const HfLlamaConfig& config, const std::string& embedding) {
    LlmcLayout layout = Llama3Layout({.block_size = config.block_size,
                                      .vocab_size = config.vocab_size,
                                      .num_layers = config.num_layers,
                                      .num_heads = config.num_heads,
                                      .num_kv_heads = config.num_kv_heads,
                                      .num_channels = config.num_channels,
                                      .hidden_size = config.hidden_size});
    if (config.tied_head) {
        std::erase_if(layout.tensors, [](const LlmcLayout::Tensor& tensor) { return tensor.name == kHfHead; });
    }
    return MakeHfParameters(layout, [&](const LlmcLayout::Tensor& tensor, int64_t layer) -> std::vector<HfTensor> {
        const std::string prefix = tensor.is_per_layer ? StrCat("model.layers.", layer, ".") : "model.";
        if (tensor.name == "attn.c_attn.weight") {
            return AttentionTensors(config, prefix);
        }
        if (tensor.name == "wte.weight") {
            return {{.name = embedding, .shape = tensor.shape}};
        }
        if (tensor.name == kHfHead) {
            return {{.name = kHfHead, .shape = tensor.shape}};
        }
        return {{.name = prefix + kNames.at(tensor.name), .shape = tensor.shape}};
    });
}

}  // namespace

HfLlamaConfig HfConfigOf(const LlmcLlama3Header& header, float rope_scaling_factor) {
    return {.block_size = header.block_size,
            .vocab_size = header.vocab_size,
            .num_layers = header.num_layers,
            .num_heads = header.num_heads,
            .num_kv_heads = header.num_kv_heads,
            .num_channels = header.num_channels,
            .hidden_size = header.hidden_size,
            .norm_eps = header.norm_eps,
            .rope_theta = header.rope_theta,
            .rope_scaling =
                header.use_scaled_rope ? std::optional(HfRopeScaling{.factor = rope_scaling_factor}) : std::nullopt,
            .tied_head = header.head_is_tied};
}

LlmcLlama3Header LlmcHeaderOf(const std::string& path, const HfLlamaConfig& config, DataType dtype) {
    if (config.rope_scaling.has_value()) {
        const HfRopeScaling known = {.factor = config.rope_scaling->factor};
        if (*config.rope_scaling != known) {
            throw Error({.where = path,
                         .what = "this file format cannot store this scaling of the rotary frequencies",
                         .got = StrCat("low_freq_factor ", config.rope_scaling->low_frequency_factor,
                                       ", high_freq_factor ", config.rope_scaling->high_frequency_factor,
                                       ", original_max_position_embeddings ", config.rope_scaling->original_positions),
                         .wanted = StrCat(known.low_frequency_factor, ", ", known.high_frequency_factor, ", ",
                                          known.original_positions)});
        }
    }
    return {.block_size = config.block_size,
            .vocab_size = config.vocab_size,
            .num_layers = config.num_layers,
            .num_heads = config.num_heads,
            .num_kv_heads = config.num_kv_heads,
            .num_channels = config.num_channels,
            .hidden_size = config.hidden_size,
            .norm_eps = config.norm_eps,
            .rope_theta = config.rope_theta,
            .use_scaled_rope = config.rope_scaling.has_value(),
            .head_is_tied = config.tied_head,
            .dtype = dtype};
}

HfLlama::HfLlama(const HfLlamaConfig& config)
    : HfLayoutModel(static_cast<int>(config.num_layers), LayoutOf(config, kEmbedding)), config_(config) {}

std::string HfLlama::ConfigJson() const {
    nlohmann::ordered_json json = {{"architectures", nlohmann::json::array({"LlamaForCausalLM"})},
                                   {"model_type", "llama"},
                                   {"vocab_size", config_.vocab_size},
                                   {"hidden_size", config_.num_channels},
                                   {"intermediate_size", config_.hidden_size},
                                   {"num_hidden_layers", config_.num_layers},
                                   {"num_attention_heads", config_.num_heads},
                                   {"num_key_value_heads", config_.num_kv_heads},
                                   {"head_dim", config_.num_channels / config_.num_heads},
                                   {"max_position_embeddings", config_.block_size},
                                   {"rms_norm_eps", ShortestDecimal(config_.norm_eps)},
                                   {"rope_theta", ShortestDecimal(config_.rope_theta)},
                                   {"hidden_act", "silu"},
                                   {"attention_bias", false},
                                   {"mlp_bias", false},
                                   {"tie_word_embeddings", config_.tied_head}};
    if (config_.rope_scaling.has_value()) {
        json["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", ShortestDecimal(config_.rope_scaling->factor)},
                                {"low_freq_factor", ShortestDecimal(config_.rope_scaling->low_frequency_factor)},
                                {"high_freq_factor", ShortestDecimal(config_.rope_scaling->high_frequency_factor)},
                                {"original_max_position_embeddings", config_.rope_scaling->original_positions}};
    }
    // Without these keys a reader takes 1 and 2, which may be tokens like any other.
    json["bos_token_id"] = nullptr;
    json["eos_token_id"] = nullptr;
    if (config_.vocab_size == kLlama3Vocab) {
        json["bos_token_id"] = kLlama3BeginOfText;
        json["eos_token_id"] = kLlama3EndOfText;
    }
    return json.dump(2) + "\n";
}

HfLlamaFolder OpenHfLlama(const std::string& folder) {
    const HfConfig json(folder);
    HfLlamaConfig config = ReadConfig(json);
    HfTensors tensors(folder);
    const HfHead head = FindHead(tensors, kEmbedding, json.Bool("tie_word_embeddings"), /*can_differ=*/true);
    config.tied_head = head.is_tied;
    return {.config = config,
            .weights = std::make_shared<HfWeights>(std::move(tensors), LayoutOf(config, head.embedding), head)};
}

}  // namespace infini_train::checkpoint
