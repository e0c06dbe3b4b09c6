#pragma once

#include <cstdint>

// The random numbers of core/random.h on the device: the same integer arithmetic, so the same bits.
namespace infini_train::kernels::cuda {

__device__ inline uint64_t CombineOnDevice(uint64_t a, uint64_t b) {
    uint64_t mixed = a * 0x9E3779B97F4A7C15u + b + 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
}

/// Elements 4 block ... 4 block + 3 of the uniform stream in [0, 1).
struct UniformBlock {
    float values[4];
};
__device__ inline UniformBlock PhiloxUniform(uint64_t seed, uint64_t stream, uint64_t block) {
    uint32_t word0 = static_cast<uint32_t>(block);
    uint32_t word1 = static_cast<uint32_t>(block >> 32);
    uint32_t word2 = static_cast<uint32_t>(stream);
    uint32_t word3 = static_cast<uint32_t>(stream >> 32);
    uint32_t key0 = static_cast<uint32_t>(seed);
    uint32_t key1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
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
    const auto uniform = [](uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1.0p-24f; };
    return {{uniform(word0), uniform(word1), uniform(word2), uniform(word3)}};
}

}  // namespace infini_train::kernels::cuda
