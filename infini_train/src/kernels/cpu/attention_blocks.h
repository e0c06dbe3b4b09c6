#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "glog/logging.h"

#include "infini_train/include/kernels/attention.h"

// What both passes of attention are made of: sequences cut into blocks, blocks widened to packed float32, and products
// of blocks. Every sum over k runs from 0 upwards in one float32, so that a result does not depend on how its tile was
// cut.

namespace infini_train::kernels::cpu {

#ifdef __AVX512F__
inline constexpr int kVectorFloats = 16;
#else
inline constexpr int kVectorFloats = 8;
#endif
// Sums of a tile: enough to hide the latency of two multipliers, and half of AVX2's registers.
inline constexpr int kTileRows = 8;
// Positions a block: 16 KiB with heads of 64, of which two fit a first-level cache.
inline constexpr int kBlockRows = 64;
// Scores times D below which waking a team costs more than it saves.
inline constexpr int64_t kSerialAttentionWork = int64_t{1} << 17;

static_assert(kBlockRows % kTileRows == 0 && kBlockRows % kVectorFloats == 0);

/// The extents of an attention call.
struct AttentionSizes {
    int64_t batch_size;    // B
    int64_t length;        // T
    int64_t num_heads;     // H
    int64_t num_kv_heads;  // K
    int64_t head_dim;      // D

    int64_t group_size() const { return num_heads / num_kv_heads; }
    int64_t row_width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
    int64_t num_blocks() const { return (length + kBlockRows - 1) / kBlockRows; }
    /// D in whole vectors: the row length of a packed block.
    int64_t packed_dim() const { return (head_dim + kVectorFloats - 1) / kVectorFloats * kVectorFloats; }
    int rows_of_block(int64_t block) const {
        return static_cast<int>(std::min<int64_t>(kBlockRows, length - block * kBlockRows));
    }
    bool is_large() const { return batch_size * num_heads * length * length * head_dim > kSerialAttentionWork; }
};

inline AttentionSizes CheckedAttentionSizes(const char* operation, const Tensor& qkv, const AttentionHeads& heads) {
    CHECK_EQ(qkv.num_dims(), 3) << operation << ": qkv " << ToString(qkv.shape());
    return {.batch_size = qkv.dim(0),
            .length = qkv.dim(1),
            .num_heads = heads.num_heads,
            .num_kv_heads = heads.num_kv_heads,
            .head_dim = HeadDim(qkv, heads)};
}

// As a machine register, loaded from and stored to any address of floats.
typedef float FloatVector
    __attribute__((vector_size(kVectorFloats * sizeof(float)), aligned(alignof(float)), may_alias));

/// Element (row, k) is data[row * row_stride + k * depth_stride].
struct LeftOperand {
    const float* data;
    int64_t row_stride;
    int64_t depth_stride;
};

/// A row-major matrix with `stride` elements from row to row.
template <typename Float>
struct Rows {
    Float* data;
    int64_t stride;
};

/// c[r, :] = (accumulate ? c[r, :] : 0) + sum_{k < depth} a(r, k) b[k, :] for kTileRows rows and one vector of columns.
/// Not inlined: among its caller's values GCC spills the strides of its rows and reloads them in the loop over k.
[[gnu::noinline]] inline void MultiplyTile(LeftOperand a, Rows<const float> b, Rows<float> c, int64_t depth,
                                           bool accumulate) {
    FloatVector sums[kTileRows];
#pragma GCC unroll 8
    for (int row = 0; row < kTileRows; ++row) {
        sums[row] = accumulate ? *reinterpret_cast<const FloatVector*>(c.data + row * c.stride) : FloatVector{};
    }
    for (int64_t k = 0; k < depth; ++k) {
        const FloatVector right = *reinterpret_cast<const FloatVector*>(b.data + k * b.stride);
#pragma GCC unroll 8
        for (int row = 0; row < kTileRows; ++row) {
            sums[row] += a.data[row * a.row_stride + k * a.depth_stride] * right;
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < kTileRows; ++row) {
        *reinterpret_cast<FloatVector*>(c.data + row * c.stride) = sums[row];
    }
}

/// The same for columns [begin, end), rounded outwards to whole vectors: operands have room for that.
inline void MultiplyStrip(LeftOperand a, Rows<const float> b, Rows<float> c, int64_t begin, int64_t end, int64_t depth,
                          bool accumulate) {
    for (int64_t column = begin / kVectorFloats * kVectorFloats; column < end; column += kVectorFloats) {
        MultiplyTile(a, {b.data + column, b.stride}, {c.data + column, c.stride}, depth, accumulate);
    }
}

/// packed[row, :] = from[row, :] in float32.
template <typename T>
void LoadRows(const T* from, int64_t stride, int num_rows, int64_t width, Rows<float> packed) {
    for (int row = 0; row < num_rows; ++row) {
        const T* const x = from + row * stride;
        float* const y = packed.data + row * packed.stride;
#pragma omp simd
        for (int64_t d = 0; d < width; ++d) {
            y[d] = static_cast<float>(x[d]);
        }
    }
}

/// to[d, row] = from[row, d], with kBlockRows from row to row of `to`. From a packed block: rows of qkv are often a
/// multiple of 1 KiB apart, so that a column of them falls into few sets of the cache.
inline void Transpose(Rows<const float> from, int num_rows, int64_t width, float* to) {
    for (int64_t d = 0; d < width; ++d) {
        for (int row = 0; row < num_rows; ++row) {
            to[d * kBlockRows + row] = from.data[row * from.stride + d];
        }
    }
}

/// Float32 arrays of one thread for one call, from one allocation, each on its own cache lines. Zero at first: tiles
/// read whole vectors, so they read (and drop) elements that nothing has written.
class AttentionScratch {
 public:
    explicit AttentionScratch(int64_t num_floats)
        : floats_(static_cast<float*>(::operator new(static_cast<size_t>(num_floats) * sizeof(float), kAlignment))) {
        std::fill_n(floats_.get(), num_floats, 0.0f);
    }
    /// The next num_floats of it, a multiple of kBlockRows.
    float* Take(int64_t num_floats) {
        float* const taken = floats_.get() + used_;
        used_ += num_floats;
        return taken;
    }

 private:
    static constexpr std::align_val_t kAlignment{64};  // a cache line
    struct Deleter {
        void operator()(float* floats) const { ::operator delete(floats, kAlignment); }
    };
    std::unique_ptr<float, Deleter> floats_;
    int64_t used_ = 0;
};

}  // namespace infini_train::kernels::cpu
