#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostream>
#include <vector>

#include "infini_train/include/kernels/attention_cached.h"
#include "infini_train/include/kernels/fill.h"

namespace infini_train::kernels {

/// A sequence that comes in pieces, and a cache with room for two positions more.
struct CachedCase {
    int64_t batch_size = 1;
    std::vector<int64_t> pieces = {};
    AttentionHeads heads = {};
    int64_t head_dim = 0;

    int64_t length() const {
        int64_t length = 0;
        for (const int64_t piece : pieces) {
            length += piece;
        }
        return length;
    }
    int64_t max_positions() const { return length() + 2; }
    int64_t row_width() const { return (heads.num_heads + 2 * heads.num_kv_heads) * head_dim; }
    Shape qkv_shape() const { return {batch_size, length(), row_width()}; }
    Shape kept_shape() const { return {batch_size, max_positions(), heads.num_kv_heads, head_dim}; }
};

inline void PrintTo(const CachedCase& c, std::ostream* os) {
    *os << "B " << c.batch_size << " H " << c.heads.num_heads << " K " << c.heads.num_kv_heads << " D " << c.head_dim
        << " T";
    for (const int64_t piece : c.pieces) {
        *os << " " << piece;
    }
}

struct CachedRun {
    std::shared_ptr<Tensor> out;  // [B, T, H D], on the CPU, whatever computed it
    std::shared_ptr<Tensor> keys;
    std::shared_ptr<Tensor> values;
};

/// Bytes [begin, end) of the second axis of x, for each index of the first.
inline std::vector<char> BytesOfPiece(const Tensor& x, int64_t begin, int64_t end) {
    std::vector<char> all(x.size_bytes());
    CopyToHost(x, all.data());
    const auto position_bytes = static_cast<int64_t>(x.size_bytes()) / (x.dim(0) * x.dim(1));
    std::vector<char> piece;
    for (int64_t b = 0; b < x.dim(0); ++b) {
        const auto row = all.begin() + b * x.dim(1) * position_bytes;
        piece.insert(piece.end(), row + begin * position_bytes, row + end * position_bytes);
    }
    return piece;
}

/// The pieces of qkv one after the other, on its device, over a cache that holds NaN at first.
inline CachedRun RunByPieces(const CachedCase& size, const Tensor& qkv) {
    const Device& device = qkv.device();
    const Device cpu = MakeCpuDevice();
    CachedRun run = {
        .out = Tensor::Empty({size.batch_size, size.length(), size.heads.num_heads * size.head_dim}, qkv.dtype(), cpu),
        .keys = Tensor::Empty(size.kept_shape(), qkv.dtype(), device),
        .values = Tensor::Empty(size.kept_shape(), qkv.dtype(), device)};
    // Filled by the CPU: a bfloat16 NaN has other bits on a GPU.
    const auto nan = Tensor::Empty(size.kept_shape(), qkv.dtype(), cpu);
    fill(cpu.type, *nan, std::numeric_limits<float>::quiet_NaN());
    run.keys->CopyFrom(*nan);
    run.values->CopyFrom(*nan);
    const auto position_bytes = static_cast<int64_t>(run.out->size_bytes()) / (size.batch_size * size.length());
    int64_t start = 0;
    for (const int64_t length : size.pieces) {
        const auto piece = Tensor::Empty({size.batch_size, length, size.row_width()}, qkv.dtype(), device);
        CopyFromHost(BytesOfPiece(qkv, start, start + length).data(), *piece);
        const auto out = attention_cached(device.type, *piece, size.heads, start, *run.keys, *run.values);
        const std::vector<char> bytes = BytesOfPiece(*out, 0, length);
        for (int64_t b = 0; b < size.batch_size; ++b) {
            std::copy_n(bytes.begin() + b * length * position_bytes, length * position_bytes,
                        static_cast<char*>(run.out->raw_data()) + (b * size.length() + start) * position_bytes);
        }
        start += length;
    }
    return run;
}

/// Odd sizes; groups of 1, 2, 3 and 8 query heads; caches under and over a block, and one that several threads share.
inline std::vector<CachedCase> CachedCases() {
    return {
        {.batch_size = 1, .pieces = {1, 1}, .heads = {1, 1}, .head_dim = 1},
        {.batch_size = 2, .pieces = {1, 1, 1, 1, 1, 1, 1}, .heads = {4, 2}, .head_dim = 8},
        {.batch_size = 3, .pieces = {5, 1, 1, 3}, .heads = {3, 1}, .head_dim = 17},
        {.batch_size = 2, .pieces = {63, 1, 1, 1, 7}, .heads = {6, 6}, .head_dim = 33},
        {.batch_size = 1, .pieces = {130, 1, 2}, .heads = {8, 1}, .head_dim = 80},
        {.batch_size = 1, .pieces = {70, 1}, .heads = {2, 1}, .head_dim = 256},
        {.batch_size = 2, .pieces = {300, 1, 1}, .heads = {12, 12}, .head_dim = 64},
    };
}

}  // namespace infini_train::kernels
