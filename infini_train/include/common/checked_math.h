#pragma once

#include <cstdint>
#include <optional>

namespace infini_train {

/// a * b and a + b, or nothing when the result does not fit 64 bits. For sizes that come from a file.
inline std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b) {
    uint64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) {
        return std::nullopt;
    }
    return result;
}

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
    uint64_t result = 0;
    if (__builtin_add_overflow(a, b, &result)) {
        return std::nullopt;
    }
    return result;
}

}  // namespace infini_train
