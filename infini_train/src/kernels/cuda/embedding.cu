#include "infini_train/include/kernels/embedding.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>

#include "cub/device/device_radix_sort.cuh"
#include "glog/logging.h"

#include "infini_train/src/kernels/cuda/elementwise.cuh"

// The backward sorts the positions by id, stably: the positions of an id are then a *run*, in their order. A run is
// summed by one thread a column, row after row, which is the order of the contract; what takes time is not the
// additions but the wait for memory, so many rows are loaded before the first is added.
namespace infini_train::kernels::cuda {
namespace {

constexpr int kBlock = 256;
constexpr int kWarps = kBlock / kWarp;
// Most warps find no run that begins with them and end at once: small blocks, so that others take their place.
constexpr int kShortRunBlock = 128;
constexpr int kShortRunBlocksAtOnce = 8;  // at most 64 registers a thread
constexpr int kLongRun = 64;              // rows from which on a run is summed by blocks with shared memory
constexpr int kLongRunPieces = 8;         // vectors of a row that such a block has: 128 bytes, a whole cache line

/// Ends the kernel, and the rank with it, for an id outside the vocabulary. A printing thread says which first.
__device__ void CheckId(const char* name, int32_t id, int64_t n, int64_t vocab_size, bool prints) {
    if (id < 0 || id >= vocab_size) {
        if (prints) {
            printf("%s: id %d at position %lld, vocabulary of %lld\n", name, id, static_cast<long long>(n),
                   static_cast<long long>(vocab_size));
        }
        __trap();
    }
}

/// One warp a row. Unit: what a lane copies at once.
template <typename Unit>
__global__ void __launch_bounds__(kBlock)
    CopyRows(const int32_t* ids, int64_t num_ids, const Unit* weight, int64_t vocab_size, int64_t row_units, Unit* y) {
    constexpr int kUnroll = 4;
    const int64_t n = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
    if (n >= num_ids) {
        return;
    }
    const int32_t id = ids[n];
    CheckId("embedding_forward", id, n, vocab_size, /*prints=*/threadIdx.x % kWarp == 0);
    const Unit* const from = weight + id * row_units;
    Unit* const to = y + n * row_units;
    for (int64_t begin = threadIdx.x % kWarp; begin < row_units; begin += kUnroll * kWarp) {
        Unit units[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (begin + u * kWarp < row_units) {
                units[u] = from[begin + u * kWarp];
            }
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (begin + u * kWarp < row_units) {
                to[begin + u * kWarp] = units[u];
            }
        }
    }
}

__global__ void __launch_bounds__(kBlock)
    NumberPositions(const int32_t* ids, int num_ids, int64_t vocab_size, int32_t* positions) {
    const int64_t n = int64_t{blockIdx.x} * kBlock + threadIdx.x;
    if (n < num_ids) {
        CheckId("embedding_backward", ids[n], n, vocab_size, /*prints=*/true);
        positions[n] = static_cast<int32_t>(n);
    }
}

/// What the sums are made from. Sorted by id, equal ids by position.
template <typename T>
struct SortedRows {
    const T* dy;               // [N, C]
    const int32_t* ids;        // [N]
    const int32_t* positions;  // [N]: the row of dy
    int64_t num_ids;           // N
    int64_t num_columns;       // C
};

/// Warp w of column tile blockIdx.y sums the run that begins at sorted index w, if one does and it is short. A lane has
/// kWidth columns, which divides C.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kShortRunBlock, kShortRunBlocksAtOnce)
    AddShortRuns(SortedRows<T> rows, bool accumulate, float* dweight) {
    constexpr int kUnroll = 4;  // rows on their way; divides the warp, so that their positions are in one register
    static_assert(kLongRun == 2 * kWarp, "the lanes look at two ids each");
    const int lane = threadIdx.x % kWarp;
    const int64_t begin = int64_t{blockIdx.x} * (kShortRunBlock / kWarp) + threadIdx.x / kWarp;
    if (begin >= rows.num_ids) {
        return;
    }
    // All that may be wanted at once: one wait for memory, not one after the other. No id is -1.
    const int64_t low = begin + lane;
    const int64_t high = low + kWarp;
    const int32_t id_before = begin > 0 ? rows.ids[begin - 1] : -1;
    const int32_t low_id = low < rows.num_ids ? rows.ids[low] : -1;
    const int32_t high_id = high < rows.num_ids ? rows.ids[high] : -1;
    const int32_t low_position = low < rows.num_ids ? rows.positions[low] : 0;
    const int32_t high_position = high < rows.num_ids ? rows.positions[high] : 0;
    const int32_t id = __shfl_sync(kFullWarp, low_id, 0);
    const int length = __popc(__ballot_sync(kFullWarp, low_id == id)) + __popc(__ballot_sync(kFullWarp, high_id == id));
    if (id_before == id || length == kLongRun) {
        return;
    }

    const int64_t column = (int64_t{blockIdx.y} * kWarp + lane) * kWidth;
    const bool has_columns = column < rows.num_columns;
    float* const row = dweight + id * rows.num_columns + column;
    Vector<float, kWidth> sum = {};
    if (accumulate && has_columns) {
        sum = LoadVector<kWidth>(static_cast<const float*>(row));
    }
    for (int first = 0; first < length; first += kUnroll) {
        Vector<T, kWidth> loaded[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int32_t position =
                __shfl_sync(kFullWarp, first < kWarp ? low_position : high_position, (first + u) % kWarp);
            if (has_columns && first + u < length) {
                loaded[u] = LoadVector<kWidth>(rows.dy + position * rows.num_columns + column);
            }
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (has_columns && first + u < length) {
#pragma unroll
                for (int i = 0; i < kWidth; ++i) {
                    sum.values[i] += ToFloat(loaded[u].values[i]);
                }
            }
        }
    }
    if (has_columns) {
        StoreVector(row, sum);
    }
}

/// Block (k, tile) sums the long run whose first index that is a multiple of kLongRun is k * kLongRun: as long as it
/// is, it has one. All threads load kBatch rows of a tile at a time, then one thread a column adds them.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlock) AddLongRuns(SortedRows<T> rows, bool accumulate, float* dweight) {
    constexpr int kWidth = kVectorWidth<T>;
    constexpr int kPieces = kLongRunPieces;
    constexpr int kTile = kPieces * kWidth;        // columns
    constexpr int kRowsAtOnce = kBlock / kPieces;  // that all threads load with one vector each
    constexpr int kBatch = kBlock;                 // one id a thread
    constexpr int kUnroll = kBatch / kRowsAtOnce;
    static_assert(kTile <= kBlock && kLongRun <= kBlock);
    __shared__ Vector<T, kWidth> tile[kBatch][kPieces];  // 32 KiB
    __shared__ int32_t positions[kBatch];

    const int thread = static_cast<int>(threadIdx.x);
    const int64_t multiple = int64_t{blockIdx.x} * kLongRun;
    const int32_t id = rows.ids[multiple];
    // How many of the kLongRun indices before this one are of the same run.
    const int before =
        __syncthreads_count(thread < kLongRun && multiple > thread && rows.ids[multiple - 1 - thread] == id);
    if (before == kLongRun) {
        return;  // an earlier block's
    }
    const int64_t begin = multiple - before;
    if (begin + kLongRun > rows.num_ids || rows.ids[begin + kLongRun - 1] != id) {
        return;  // a short run
    }

    const int64_t first_column = int64_t{blockIdx.y} * kTile;
    const int64_t sum_column = first_column + thread;
    const bool adds = thread < kTile && sum_column < rows.num_columns;
    float* const element = dweight + id * rows.num_columns + sum_column;
    float sum = adds && accumulate ? *element : 0.0f;

    const int piece = thread % kPieces;
    const int64_t column = first_column + piece * kWidth;
    for (int64_t first = begin;; first += kBatch) {
        const int64_t index = first + thread;
        const bool is_in = index < rows.num_ids && rows.ids[index] == id;
        positions[thread] = is_in ? rows.positions[index] : 0;
        // Also: the batch before has been added, so that tile may be written.
        const int num_rows = __syncthreads_count(is_in);
        Vector<T, kWidth> loaded[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int r = u * kRowsAtOnce + thread / kPieces;
            if (r < num_rows) {
                const T* const from = rows.dy + positions[r] * rows.num_columns + column;
                if constexpr (kAligned) {
                    if (column < rows.num_columns) {
                        loaded[u] = LoadVector<kWidth>(from);
                    }
                } else {
#pragma unroll
                    for (int i = 0; i < kWidth; ++i) {
                        if (column + i < rows.num_columns) {
                            loaded[u].values[i] = from[i];
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int r = u * kRowsAtOnce + thread / kPieces;
            if (r < num_rows) {
                tile[r][piece] = loaded[u];
            }
        }
        __syncthreads();
        if (adds) {
#pragma unroll 16
            for (int r = 0; r < num_rows; ++r) {
                sum += ToFloat(tile[r][thread / kWidth].values[thread % kWidth]);
            }
        }
        if (num_rows < kBatch) {
            break;
        }
    }
    if (adds) {
        *element = sum;
    }
}

/// The lowest bits that tell all ids < vocab_size apart.
int NumIdBits(int64_t vocab_size) {
    return std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(vocab_size - 1))), 1, 31);
}

template <typename T>
void AddRuns(const SortedRows<T>& rows, bool accumulate, float* dweight, cudaStream_t stream) {
    constexpr int kWidth = kVectorWidth<T>;
    const bool aligned = rows.num_columns % kWidth == 0 && IsAligned16(rows.dy, dweight);
    const auto num_tiles = [&](int columns) { return static_cast<unsigned>(CeilDiv(rows.num_columns, columns)); };
    const int width = aligned ? kWidth : 1;
    const dim3 short_grid(static_cast<unsigned>(CeilDiv(rows.num_ids, kShortRunBlock / kWarp)),
                          num_tiles(kWarp * width));
    const auto add_short_runs = aligned ? AddShortRuns<T, kWidth> : AddShortRuns<T, 1>;
    add_short_runs<<<short_grid, kShortRunBlock, 0, stream>>>(rows, accumulate, dweight);
    INFINI_CUDA_CHECK_LAUNCH();
    const dim3 long_grid(static_cast<unsigned>(CeilDiv(rows.num_ids, kLongRun)), num_tiles(kLongRunPieces * kWidth));
    const auto add_long_runs = aligned ? AddLongRuns<T, true> : AddLongRuns<T, false>;
    add_long_runs<<<long_grid, kBlock, 0, stream>>>(rows, accumulate, dweight);
    INFINI_CUDA_CHECK_LAUNCH();
}

}  // namespace

std::shared_ptr<Tensor> EmbeddingForward(const Tensor& ids, const Tensor& weight) {
    CHECK(weight.num_dims() == 2 && IsFloat(weight.dtype()))
        << "embedding_forward: weight " << ToString(weight.shape()) << " " << Name(weight.dtype());
    const int32_t* id = ids.data<int32_t>();
    Shape shape = ids.shape();
    shape.push_back(weight.dim(1));
    auto y = Tensor::Empty(shape, weight.dtype(), weight.device());
    if (y->num_elements() == 0) {
        return y;
    }
    const auto launch = [&](auto unit, int64_t row_units) {
        using Unit = decltype(unit);
        CopyRows<<<CeilDiv(ids.num_elements(), kWarps), kBlock, 0, LaunchStream(weight.device())>>>(
            id, ids.num_elements(), static_cast<const Unit*>(weight.raw_data()), weight.dim(0), row_units,
            static_cast<Unit*>(y->raw_data()));
        INFINI_CUDA_CHECK_LAUNCH();
    };
    const int64_t row_bytes = weight.dim(1) * static_cast<int64_t>(SizeOf(weight.dtype()));
    if (row_bytes % 16 == 0 && IsAligned16(weight.raw_data(), y->raw_data())) {
        launch(uint4{}, row_bytes / 16);
    } else if (weight.dtype() == DataType::kFloat32) {
        launch(uint32_t{}, weight.dim(1));
    } else {
        launch(uint16_t{}, weight.dim(1));
    }
    return y;
}

void EmbeddingBackward(const Tensor& dy, const Tensor& ids, Tensor& dweight, bool accumulate) {
    CHECK(dweight.num_dims() == 2 && dweight.dtype() == DataType::kFloat32 && dy.dim(-1) == dweight.dim(1) &&
          dy.num_rows() == ids.num_elements())
        << "embedding_backward: dy " << ToString(dy.shape()) << ", ids " << ToString(ids.shape()) << ", dweight "
        << ToString(dweight.shape()) << " " << Name(dweight.dtype());
    CHECK_LE(ids.num_elements(), std::numeric_limits<int32_t>::max()) << "embedding_backward: too many ids";
    const int num_ids = static_cast<int>(ids.num_elements());
    const int32_t* id = ids.data<int32_t>();
    if (!accumulate) {
        dweight.SetZero();  // the rows of ids that do not occur
    }
    if (dy.num_elements() == 0) {
        return;
    }
    const Device& device = dy.device();
    const cudaStream_t stream = LaunchStream(device);
    const auto positions = Tensor::Empty({num_ids}, DataType::kInt32, device);
    NumberPositions<<<CeilDiv(num_ids, kBlock), kBlock, 0, stream>>>(id, num_ids, dweight.dim(0),
                                                                     positions->data<int32_t>());
    INFINI_CUDA_CHECK_LAUNCH();

    const auto sorted_ids = Tensor::Empty({num_ids}, DataType::kInt32, device);
    const auto sorted_positions = Tensor::Empty({num_ids}, DataType::kInt32, device);
    const auto sort = [&](void* scratch, size_t* scratch_bytes) {
        INFINI_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, *scratch_bytes, id, sorted_ids->data<int32_t>(),
                                                          static_cast<const int32_t*>(positions->raw_data()),
                                                          sorted_positions->data<int32_t>(), num_ids, /*begin_bit=*/0,
                                                          NumIdBits(dweight.dim(0)), stream));
    };
    size_t scratch_bytes = 0;
    sort(nullptr, &scratch_bytes);  // says how many
    const auto scratch = Tensor::Empty({static_cast<int64_t>(scratch_bytes)}, DataType::kUInt8, device);
    sort(scratch->raw_data(), &scratch_bytes);

    DispatchFloat(dy.dtype(), [&](auto zero) {
        using T = decltype(zero);
        AddRuns<T>({.dy = Elements<T>(dy),
                    .ids = Elements<int32_t>(*sorted_ids),
                    .positions = Elements<int32_t>(*sorted_positions),
                    .num_ids = num_ids,
                    .num_columns = dweight.dim(1)},
                   accumulate, dweight.data<float>(), stream);
    });
}

}  // namespace infini_train::kernels::cuda
