#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <ostream>
#include <vector>

#include "infini_train/include/kernels/attention.h"

namespace infini_train::kernels {

struct RotaryCase {
    int64_t batch_size = 0;
    int64_t length = 0;
    AttentionHeads heads = {};
    int64_t head_dim = 0;
    int64_t num_angles = 0;  // positions in the table, >= length
};

inline void PrintTo(const RotaryCase& c, std::ostream* os) {
    *os << "B " << c.batch_size << " T " << c.length << " H " << c.heads.num_heads << " K " << c.heads.num_kv_heads
        << " D " << c.head_dim << " angles " << c.num_angles;
}

/// LLaMA's table: pair j turns by t / 10000^(2 j / D).
inline std::shared_ptr<Tensor> Angles(int64_t num_positions, int64_t head_dim, const Device& device) {
    std::vector<float> angles;
    for (int64_t t = 0; t < num_positions; ++t) {
        for (int64_t j = 0; j < head_dim / 2; ++j) {
            const double angle = static_cast<double>(t) *
                                 std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
            angles.push_back(static_cast<float>(std::cos(angle)));
            angles.push_back(static_cast<float>(std::sin(angle)));
        }
    }
    return Tensor::FromVector(angles, {num_positions, head_dim / 2, 2}, device);
}

}  // namespace infini_train::kernels
