#pragma once

#include <cstdint>
#include <span>

namespace infini_train {

struct SamplingOptions {
    float temperature = 1.0f;  // 0: always the likeliest token, the first of equals
    int top_k = 0;             // among the k likeliest tokens alone, of equals the first; 0: all
    /// Among the fewest likeliest tokens, of those that top_k leaves, whose probabilities together are at least this
    /// share; 1: all.
    float top_p = 1.0f;
};

/// The token where the running sum of exp(logit / temperature), over the allowed tokens in the order of their ids,
/// passes the part `uniform` in [0, 1) of its end. logits: at least one, finite. Sums run in float64.
int32_t SampleToken(std::span<const float> logits, const SamplingOptions& options, double uniform);

}  // namespace infini_train
