#pragma once

#include <type_traits>

#include "infini_train/src/kernels/cuda/launch.cuh"

// Rows read and written in packs of 16 bytes. kVector says whether the rows allow accesses of 16 bytes: their width is
// a multiple of a pack and they are aligned. It decides how a pack is accessed, never which thread has it, so that sums
// have the same bits wherever the tensor begins.
namespace infini_train::kernels::cuda {

/// The pack of a row that begins at a column; zeros from num_columns on.
template <bool kVector, typename T, typename Index>
__device__ inline Pack<T> LoadColumns(const T* row, Index column, Index num_columns) {
    Pack<T> pack;
    if constexpr (kVector) {
        if (column < num_columns) {
            return LoadPack(row + column);
        }
    }
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        pack.values[i] = FromFloat<T>(0.0f);
        if constexpr (!kVector) {
            if (column + i < num_columns) {
                pack.values[i] = row[column + i];
            }
        }
    }
    return pack;
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
