#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "infini_train/include/core/dtype.h"

// Functions of one float32 that the compiler vectorises inside a loop: no branch, no table, no call. They need no
// -ffast-math, so a NaN stays one.

namespace infini_train::kernels::cpu {

/// e^x within 1 unit in the last place; 0 or infinity where e^x leaves the range of float32, denormals included; NaN
/// for NaN.
inline float Exp(float x) {
    constexpr float kLowest = -104.0f;  // e^x is under half the smallest denormal
    constexpr float kHighest = 89.0f;   // e^x is over the largest float
    constexpr float kToInteger =
        0x1.8p23f;  // a sum with it has no fraction: it ends with the bits of the rounded summand
    constexpr float kLog2E = 0x1.715476p0f;  // 1 / ln 2
    constexpr float kLn2High = 0x1.63p-1f;   // 10 bits: its product with an exponent is exact
    constexpr float kLn2Low = -0x1.bd0106p-13f;
    // NaN compares false and passes both.
    x = x < kLowest ? kLowest : x;
    x = x > kHighest ? kHighest : x;
    // x = n ln 2 + r with |r| <= ln 2 / 2.
    const float shifted = x * kLog2E + kToInteger;
    const float n = shifted - kToInteger;
    const float r = (x - n * kLn2High) - n * kLn2Low;
    // e^r = 1 + r + r^2 p(r): coefficients of Cephes' expf (S. Moshier).
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float power = (p * r * r + r) + 1.0f;
    // 2^n in two factors, as n may lie outside the exponents of normal numbers at both ends; only the second product
    // rounds.
    const int32_t exponent =
        static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kToInteger));
    const int32_t half = exponent >> 1;
    const auto power_of_two = [](uint32_t k) { return std::bit_cast<float>((k + 127u) << 23); };
    return power * power_of_two(static_cast<uint32_t>(half)) *
           power_of_two(static_cast<uint32_t>(exponent) - static_cast<uint32_t>(half));
}

/// value = 1 / (1 + e^-x) and complement = 1 - value = 1 / (1 + e^x), each to a few units in its own last place.
struct SigmoidPair {
    float value;
    float complement;
};
inline SigmoidPair Sigmoid(float x) {
    // e^-|x| is in [0, 1]: neither overflow nor cancellation.
    const float small = Exp(-std::fabs(x));
    const float inverse = 1.0f / (1.0f + small);
    const float rest = small * inverse;
    return {.value = x < 0.0f ? rest : inverse, .complement = x < 0.0f ? inverse : rest};
}

/// element = value, rounded to its dtype. GCC vectorises a loop with this store, and none that assigns a whole
/// BFloat16.
inline void Store(float value, float& element) {
    element = value;
}
inline void Store(float value, BFloat16& element) {
    element.bits = BFloat16(value).bits;
}

}  // namespace infini_train::kernels::cpu
