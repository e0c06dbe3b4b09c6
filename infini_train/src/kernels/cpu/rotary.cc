#include "infini_train/include/kernels/rotary.h"

#include <algorithm>
#include <cstdint>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves

struct RotarySizes {
    int64_t num_rows;       // B T
    int64_t num_positions;  // T
    int64_t row_width;      // (H + 2 K) D
    int64_t num_rotated;    // H + K: the heads that are turned
    int64_t num_pairs;      // D / 2
};

/// sign -1 turns the other way.
template <typename T>
void Rotate(const T* qkv, const float* angles, const RotarySizes& sizes, float sign, T* rotated) {
#pragma omp parallel for if (sizes.num_rows * sizes.row_width > kSerialElements)
    for (int64_t row = 0; row < sizes.num_rows; ++row) {
        const T* const x = qkv + row * sizes.row_width;
        T* const y = rotated + row * sizes.row_width;
        const float* const angle = angles + (row % sizes.num_positions) * 2 * sizes.num_pairs;
        for (int64_t head = 0; head < sizes.num_rotated; ++head) {
            const T* const from = x + head * 2 * sizes.num_pairs;
            T* const to = y + head * 2 * sizes.num_pairs;
#pragma omp simd
            for (int64_t j = 0; j < sizes.num_pairs; ++j) {
                const float cosine = angle[2 * j];
                const float sine = sign * angle[2 * j + 1];
                const float even = static_cast<float>(from[2 * j]);
                const float odd = static_cast<float>(from[2 * j + 1]);
                Store(even * cosine - odd * sine, to[2 * j]);
                Store(even * sine + odd * cosine, to[2 * j + 1]);
            }
        }
        const int64_t values = sizes.num_rotated * 2 * sizes.num_pairs;
        std::copy(x + values, x + sizes.row_width, y + values);
    }
}

}  // namespace

std::shared_ptr<Tensor> Rotary(const Tensor& qkv, const Tensor& angles, const AttentionHeads& heads, bool inverse) {
    CHECK_EQ(qkv.num_dims(), 3) << "rotary: qkv " << ToString(qkv.shape());
    const int64_t head_dim = HeadDim(qkv, heads);
    CHECK_EQ(head_dim % 2, 0) << "rotary: turns pairs, heads are " << head_dim << " wide";
    CHECK(angles.num_dims() == 3 && angles.dim(0) >= qkv.dim(1) && angles.dim(1) == head_dim / 2 && angles.dim(2) == 2)
        << "rotary: angles " << ToString(angles.shape()) << " for " << qkv.dim(1) << " positions and heads " << head_dim
        << " wide";
    const RotarySizes sizes{.num_rows = qkv.num_rows(),
                            .num_positions = qkv.dim(1),
                            .row_width = qkv.dim(2),
                            .num_rotated = int64_t{heads.num_heads} + heads.num_kv_heads,
                            .num_pairs = head_dim / 2};
    auto rotated = Tensor::Empty(qkv.shape(), qkv.dtype(), qkv.device());
    DispatchFloat(qkv.dtype(), [&](auto zero) {
        using T = decltype(zero);
        Rotate(qkv.data<T>(), angles.data<float>(), sizes, inverse ? -1.0f : 1.0f, rotated->data<T>());
    });
    return rotated;
}

}  // namespace infini_train::kernels::cpu
