#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/kv_cache.h"
#include "infini_train/include/nn/modules/linear.h"

namespace infini_train::nn {

/// Frequencies of rotary position embedding.
struct RotaryOptions {
    int64_t head_dim = 0;
    int64_t max_positions = 0;
    float theta = 10000.0f;
    /// LLaMA-3.1's stretching to longer contexts: frequencies whose wave is longer than original_positions /
    /// low_frequency_factor are divided by factor, those shorter than original_positions / high_frequency_factor stay,
    /// those between are interpolated. factor 1: none.
    float scaling_factor = 1.0f;
    float low_frequency_factor = 1.0f;
    float high_frequency_factor = 4.0f;
    int64_t original_positions = 8192;
};
/// The table that kernels/rotary.h reads: [max_positions, head_dim / 2, 2], cosine and sine of position * frequency.
std::shared_ptr<Tensor> MakeRotaryAngles(const RotaryOptions& options, const Device& device);

/// Projection to packed QKV, rotation where angles are given, causal attention, projection back. Where the cache serves
/// x, its positions follow those in the cache.
/// Submodules: c_attn (dim -> (num_heads + 2 num_kv_heads) head_dim, rows Q | K | V), c_proj (dim -> dim).
/// Forward: {x [B, T, dim]} -> {y [B, T, dim]}
class CausalSelfAttention : public Module {
 public:
    struct Options {
        int64_t dim = 0;
        int num_heads = 0;
        int num_kv_heads = 0;
        bool bias = true;
        std::shared_ptr<Tensor> rotary_angles = nullptr;  // null: no rotation
        std::shared_ptr<KvCache> kv_cache = nullptr;      // null: none
        bool deterministic = true;                        // false: a faster backward where the device has one
        float init_stddev = 0.02f;                        // of c_attn
        float projection_init_stddev = 0.02f;             // of c_proj, which feeds the residual stream
    };
    CausalSelfAttention(const Options& options, const Device& device);

    TensorList Forward(const TensorList& inputs) override;

 private:
    Options options_;
    int layer_ = 0;  // of the cache
    std::shared_ptr<Linear> c_attn_;
    std::shared_ptr<Linear> c_proj_;
};

}  // namespace infini_train::nn
