#include "infini_train/include/nn/modules/attention.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/autograd/attention.h"
#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/rotary.h"

namespace infini_train::nn {
namespace {

float ScaledFrequency(float frequency, const RotaryOptions& options) {
    if (options.scaling_factor == 1.0f) {
        return frequency;
    }
    const float positions = static_cast<float>(options.original_positions);
    const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
    if (wavelength < positions / options.high_frequency_factor) {
        return frequency;
    }
    if (wavelength > positions / options.low_frequency_factor) {
        return frequency / options.scaling_factor;
    }
    const float smooth = (positions / wavelength - options.low_frequency_factor) /
                         (options.high_frequency_factor - options.low_frequency_factor);
    return (1.0f - smooth) * frequency / options.scaling_factor + smooth * frequency;
}

}  // namespace

std::shared_ptr<Tensor> MakeRotaryAngles(const RotaryOptions& options, const Device& device) {
    CHECK(options.head_dim > 0 && options.head_dim % 2 == 0) << "head of " << options.head_dim;
    const int64_t num_pairs = options.head_dim / 2;
    std::vector<float> angles;
    angles.reserve(static_cast<size_t>(options.max_positions * options.head_dim));
    // Frequencies and angles in float32, as the models were trained.
    for (int64_t position = 0; position < options.max_positions; ++position) {
        for (int64_t pair = 0; pair < num_pairs; ++pair) {
            const double exponent = static_cast<double>(2 * pair) / static_cast<double>(options.head_dim);
            const auto frequency = static_cast<float>(std::pow(static_cast<double>(options.theta), -exponent));
            const float angle = static_cast<float>(position) * ScaledFrequency(frequency, options);
            angles.push_back(std::cos(angle));
            angles.push_back(std::sin(angle));
        }
    }
    return Tensor::FromVector(angles, {options.max_positions, num_pairs, 2}, device);
}

CausalSelfAttention::CausalSelfAttention(const Options& options, const Device& device) : options_(options) {
    CHECK(options.num_heads > 0 && options.dim % options.num_heads == 0)
        << options.dim << " channels over " << options.num_heads << " heads";
    const int64_t head_dim = options.dim / options.num_heads;
    c_attn_ = std::make_shared<Linear>(
        Linear::Options{.in_features = options.dim,
                        .out_features = (options.num_heads + 2 * options.num_kv_heads) * head_dim,
                        .bias = options.bias,
                        .init_stddev = options.init_stddev},
        device);
    c_proj_ = std::make_shared<Linear>(Linear::Options{.in_features = options.dim,
                                                       .out_features = options.dim,
                                                       .bias = options.bias,
                                                       .init_stddev = options.projection_init_stddev},
                                       device);
    RegisterModule("c_attn", c_attn_);
    RegisterModule("c_proj", c_proj_);
    if (options_.kv_cache != nullptr) {
        layer_ = options_.kv_cache->AddLayer();
    }
}

TensorList CausalSelfAttention::Forward(const TensorList& inputs) {
    const kernels::AttentionHeads heads = {.num_heads = options_.num_heads, .num_kv_heads = options_.num_kv_heads};
    std::shared_ptr<Tensor> qkv = c_attn_->Forward(inputs)[0];
    KvCache* const cache =
        options_.kv_cache != nullptr && options_.kv_cache->Serves(*qkv) ? options_.kv_cache.get() : nullptr;
    if (const std::shared_ptr<Tensor>& angles = options_.rotary_angles; angles != nullptr) {
        qkv = autograd::Rotary(qkv, cache == nullptr ? angles : angles->Slice(cache->length(), angles->dim(0)), heads);
    }
    return c_proj_->Forward({cache == nullptr ? autograd::Attention(qkv, heads, options_.deterministic)
                                              : cache->Attend(layer_, *qkv, heads)});
}

}  // namespace infini_train::nn
