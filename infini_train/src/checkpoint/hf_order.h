#pragma once

#include <algorithm>
#include <cstdint>

// Orders of rows and columns in Hugging Face's files.

namespace infini_train::checkpoint {

/// transposed[c * stride + r] = matrix[r * num_columns + c]
inline void Transpose(const float* matrix, int64_t num_rows, int64_t num_columns, float* transposed, int64_t stride) {
    constexpr int64_t kBlock = 32;  // squares of 4 KiB: both sides stay in the first-level cache
    for (int64_t first_row = 0; first_row < num_rows; first_row += kBlock) {
        const int64_t end_row = std::min(first_row + kBlock, num_rows);
        for (int64_t first_column = 0; first_column < num_columns; first_column += kBlock) {
            const int64_t end_column = std::min(first_column + kBlock, num_columns);
            for (int64_t column = first_column; column < end_column; ++column) {
                for (int64_t row = first_row; row < end_row; ++row) {
                    transposed[column * stride + row] = matrix[row * num_columns + column];
                }
            }
        }
    }
}

/// Where the file has a row of Q or K: the two numbers that rotate together lie next to each other here, half a head
/// apart there.
inline int64_t RotaryHalvesRow(int64_t row, int64_t head_dim) {
    const int64_t place = row % head_dim;
    return row - place + place % 2 * (head_dim / 2) + place / 2;
}

}  // namespace infini_train::checkpoint
