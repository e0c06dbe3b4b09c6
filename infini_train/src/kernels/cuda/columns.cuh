#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "infini_train/src/kernels/cuda/launch.cuh"

// Rows read and written in packs of 16 bytes. kVector says whether the rows allow accesses of 16 bytes: their width is
// a multiple of a pack and they are aligned. It decides how a pack is accessed, never which thread has it, so that sums
// have the same bits wherever the tensor begins.
namespace infini_train::kernels::cuda {

/// The elements of a pack, two a word in bfloat16: one by one they would take a register and an instruction more each.
template <typename T>
__device__ inline void ToFloats(const Pack<T>& pack, float (&x)[Pack<T>::kSize]) {
    const uint4 quad = std::bit_cast<uint4>(pack);
    const uint32_t words[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == sizeof(float)) {
            x[i] = __uint_as_float(words[i]);
        } else {  // a bfloat16 is the upper half of a float
            x[2 * i] = __uint_as_float(words[i] << 16);
            x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    }
}

/// Rounds to nearest even.
template <typename T>
__device__ inline Pack<T> FromFloats(const float (&x)[Pack<T>::kSize]) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == sizeof(float)) {
            words[i] = __float_as_uint(x[i]);
        } else {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
            words[i] = *reinterpret_cast<const uint32_t*>(&pair);
        }
    }
    return std::bit_cast<Pack<T>>(uint4{words[0], words[1], words[2], words[3]});
}

/// The pack of a row that begins at a column; zeros from num_columns on.
template <bool kVector, typename T, typename Index>
__device__ inline Pack<T> LoadColumns(const T* row, Index column, Index num_columns) {
    if constexpr (kVector) {
        uint4 words = {0, 0, 0, 0};  // zeros of every type; element by element they would be selected one by one
        if (column < num_columns) {
            words = *reinterpret_cast<const uint4*>(row + column);
        }
        return std::bit_cast<Pack<T>>(words);
    } else {
        Pack<T> pack;
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) {
            pack.values[i] = column + i < num_columns ? row[column + i] : FromFloat<T>(0.0f);
        }
        return pack;
    }
}

/// Nothing is written from num_columns on.
template <bool kVector, typename T, typename Index>
__device__ inline void StoreColumns(T* row, Index column, Index num_columns, const Pack<T>& pack) {
    if constexpr (kVector) {
        if (column < num_columns) {
            StorePack(row + column, pack);
        }
    } else {
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) {
            if (column + i < num_columns) {
                row[column + i] = pack.values[i];
            }
        }
    }
}

/// Calls f with kVector as a constant.
template <typename F>
void DispatchVector(bool is_vector, F&& f) {
    if (is_vector) {
        f(std::true_type{});
    } else {
        f(std::false_type{});
    }
}

}  // namespace infini_train::kernels::cuda
