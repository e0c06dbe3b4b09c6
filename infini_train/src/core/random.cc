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

double Normal(const RandomStream& random, uint64_t index) {
    // One block of four words gives two pairs, a pair two values.
    const std::array<uint32_t, 4> words = Philox(random, index / 4);
    const size_t pair = (index % 4) / 2 * 2;
    const double u = (static_cast<double>(words[pair]) + 0.5) * 0x1.0p-32;
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(words[pair + 1]) * 0x1.0p-32;
    const double radius = std::sqrt(-2.0 * std::log(u));
    return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
}

}  // namespace infini_train
