#pragma once

namespace infini_train::kernels::cuda {

// e^x to about |x| 2^-23 relative, and 1 / x to one unit in the last place: one instruction each of the special
// function units where the library's take ten of the others, which the kernels that use them have no time for. Results
// below the normal numbers are 0; a NaN stays one.
__device__ inline float FastExp(float x) {
    constexpr float kLog2E = 1.4426950408889634f;
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * kLog2E));
    return power;
}
__device__ inline float FastReciprocal(float x) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
}

/// 1 / (1 + e^-x). For very negative x the power is infinite and the result 0.
__device__ inline float Sigmoid(float x) {
    return FastReciprocal(1.0f + FastExp(-x));
}

/// value = 1 / (1 + e^-x) and complement = 1 - value = 1 / (1 + e^x), neither by a subtraction that cancels.
struct SigmoidPair {
    float value;
    float complement;
};
__device__ inline SigmoidPair SigmoidAndComplement(float x) {
    // e^-|x| is in [0, 1], so that its product with the reciprocal is never infinity times 0.
    const float small = FastExp(-fabsf(x));
    const float inverse = FastReciprocal(1.0f + small);
    const float rest = small * inverse;
    return {.value = x < 0.0f ? rest : inverse, .complement = x < 0.0f ? inverse : rest};
}

}  // namespace infini_train::kernels::cuda
