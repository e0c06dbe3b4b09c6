#include "infini_train/include/core/random.h"

#include <cmath>
#include <numbers>

namespace infini_train {

uint64_t StreamOf(std::string_view name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : name) {
        hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    }
    return hash;
}

uint64_t Combine(uint64_t a, uint64_t b) {
    // The finalizer of SplitMix64, over a step of the golden ratio for each part.
    uint64_t mixed = a * 0x9E3779B97F4A7C15u + b + 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
}

std::array<double, 4> NormalBlock(const RandomStream& random, uint64_t block) {
    const std::array<uint32_t, 4> words = Philox(random, block);
    std::array<double, 4> values;
    for (size_t pair = 0; pair < 4; pair += 2) {
        const double u = (static_cast<double>(words[pair]) + 0.5) * 0x1.0p-32;
        const double angle = 2.0 * std::numbers::pi * static_cast<double>(words[pair + 1]) * 0x1.0p-32;
        const double radius = std::sqrt(-2.0 * std::log(u));
        values[pair] = radius * std::cos(angle);
        values[pair + 1] = radius * std::sin(angle);
    }
    return values;
}

}  // namespace infini_train
