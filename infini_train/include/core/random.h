#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace infini_train {

/// Random numbers by position: the value depends on (seed, stream, index) alone, so any rank that needs element i of a
/// parameter computes the same one. Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
/// 2011).
struct RandomStream {
    uint64_t seed = 0;
    uint64_t stream = 0;  // which parameter, layer, step, ...
};

/// 64 bits of a name (FNV-1a): the stream of a parameter.
uint64_t StreamOf(std::string_view name);
/// A stream from parts, in which the order matters: Combine(Combine(step, layer), sample).
uint64_t Combine(uint64_t a, uint64_t b);

/// Four independent 32-bit words for a block index. In scalars, so that a loop over blocks vectorises.
inline std::array<uint32_t, 4> Philox(const RandomStream& random, uint64_t block) {
    uint32_t word0 = static_cast<uint32_t>(block);
    uint32_t word1 = static_cast<uint32_t>(block >> 32);
    uint32_t word2 = static_cast<uint32_t>(random.stream);
    uint32_t word3 = static_cast<uint32_t>(random.stream >> 32);
    uint32_t key0 = static_cast<uint32_t>(random.seed);
    uint32_t key1 = static_cast<uint32_t>(random.seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t product0 = uint64_t{0xD2511F53} * word0;
        const uint64_t product1 = uint64_t{0xCD9E8D57} * word2;
        word0 = static_cast<uint32_t>(product1 >> 32) ^ word1 ^ key0;
        word1 = static_cast<uint32_t>(product1);
        word2 = static_cast<uint32_t>(product0 >> 32) ^ word3 ^ key1;
        word3 = static_cast<uint32_t>(product0);
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    return {word0, word1, word2, word3};
}

/// In [0, 1), a multiple of 2^-24.
inline float UniformFromBits(uint32_t bits) {
    return static_cast<float>(bits >> 8) * 0x1.0p-24f;
}

/// Element `index` of a uniform stream in [0, 1).
inline float Uniform(const RandomStream& random, uint64_t index) {
    return UniformFromBits(Philox(random, index / 4)[index % 4]);
}

/// Elements 4 block ... 4 block + 3 of a stream of standard normal values (Box-Muller in double): four for the price of
/// one.
std::array<double, 4> NormalBlock(const RandomStream& random, uint64_t block);

/// Element `index` of that stream.
inline double Normal(const RandomStream& random, uint64_t index) {
    return NormalBlock(random, index / 4)[index % 4];
}

}  // namespace infini_train
