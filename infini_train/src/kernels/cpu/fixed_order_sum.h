#pragma once

#include <algorithm>
#include <cstdint>

// Sums whose order is fixed by the sizes alone: not by the number of threads, nor by the alignment of the data (which
// the compiler's own vectorised sums may depend on).

namespace infini_train::kernels::cpu {

/// The sum of term(i) over 0 <= i < count, in 32 interleaved partial sums: two of the widest vectors, which hides the
/// latency of an addition and rounds less than one running sum.
template <typename Term>
inline float SumTerms(int64_t count, Term term) {
    constexpr int64_t kLanes = 32;
    float lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
            lanes[lane] += term(i + lane);
        }
    }
    for (int64_t lane = 0; i < count; ++lane, ++i) {
        lanes[lane] += term(i);
    }
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
        for (int64_t lane = 0; lane < width; ++lane) {
            lanes[lane] += lanes[lane + width];
        }
    }
    return lanes[0];
}

/// Cuts rows into blocks for sums over rows: each block sums its rows into a partial sum of its own, in their order,
/// and AddBlocks adds those up.
struct RowBlocks {
    int64_t num_rows = 0;
    int64_t rows_per_block = 0;
    int64_t num_blocks = 0;

    explicit RowBlocks(int64_t rows) : num_rows(rows) {
        constexpr int64_t kMaxBlocks = 64;        // bounds the memory for partial sums; more than the threads of a rank
        constexpr int64_t kMinRowsPerBlock = 16;  // a partial sum costs as much as a row or two
        rows_per_block = std::max(kMinRowsPerBlock, (rows + kMaxBlocks - 1) / kMaxBlocks);
        num_blocks = (rows + rows_per_block - 1) / rows_per_block;
    }
    int64_t begin(int64_t block) const { return block * rows_per_block; }
    int64_t end(int64_t block) const { return std::min(num_rows, (block + 1) * rows_per_block); }
};

/// sum[c] = (accumulate ? sum[c] : 0) + sum over blocks of partial_sums[block, c], in the order of the blocks.
inline void AddBlocks(const float* partial_sums, int64_t num_blocks, int64_t num_columns, bool accumulate, float* sum) {
    constexpr int64_t kColumns = 256;     // a task's sums stay in the first cache
    constexpr int64_t kSerial = 1 << 14;  // below this many elements waking a team costs more than it saves
#pragma omp parallel for if (num_blocks * num_columns > kSerial)
    for (int64_t begin = 0; begin < num_columns; begin += kColumns) {
        const int64_t end = std::min(num_columns, begin + kColumns);
        float total[kColumns] = {};
        for (int64_t block = 0; block < num_blocks; ++block) {
            const float* row = partial_sums + block * num_columns;
#pragma omp simd
            for (int64_t c = begin; c < end; ++c) {
                total[c - begin] += row[c];
            }
        }
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) {
            sum[c] = accumulate ? sum[c] + total[c - begin] : total[c - begin];
        }
    }
}

}  // namespace infini_train::kernels::cpu
