#include "infini_train/src/kernels/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <unordered_map>

#include <glog/logging.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "infini_train/include/core/dtype.h"

// oneDNN is free to cut a product by the number of threads it finds, which would change the order of sums. So C is cut
// here, into blocks that depend on the shape alone; each block is one single-threaded oneDNN matmul over the whole of
// k, and OpenMP threads take blocks as they come free.
//
// A primitive is built by the thread that calls Gemm, and run by all threads of its team: that is safe since it is
// immutable and every thread brings its own scratchpad.

namespace infini_train::kernels::cpu {
namespace {

static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP || DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ,
              "a oneDNN that does not take its threads from OpenMP would split blocks by thread count");

// A block is large so that packing its panels is spread over many products, and small so that all threads get some.
constexpr int64_t kMaxRows = 384;
constexpr int64_t kWideColumns = 384;
constexpr int64_t kNarrowColumns = 192;  // where wide blocks would be fewer than kFewBlocks
constexpr int64_t kFewBlocks = 8;
constexpr int64_t kRowMultiple = 16;               // a vector of float32: a transposed A is packed by vectors
constexpr int64_t kColumnMultiple = 64;            // four vectors of float32: where oneDNN's kernels have no tail
constexpr int64_t kSerialWork = int64_t{1} << 19;  // m * n * k below which waking a team costs more than it saves
constexpr size_t kMaxCachedPrimitives = 256;
constexpr int64_t kWidenDepth = 512;  // rows of k widened at once where the CPU has no bfloat16 product
constexpr size_t kAlignment = 64;     // a cache line

/// Makes oneDNN see one thread: it asks omp_get_max_threads when it builds a primitive and when it runs one.
class SingleThreadScope {
 public:
    SingleThreadScope() : saved_(omp_get_max_threads()) { omp_set_num_threads(1); }
    ~SingleThreadScope() { omp_set_num_threads(saved_); }
    SingleThreadScope(const SingleThreadScope&) = delete;

 private:
    int saved_;
};

/// Memory that a thread keeps from call to call: a page fault costs more than the product it serves.
class ScratchBuffer {
 public:
    template <typename T = std::byte>
    T* Get(size_t count) {
        const size_t size_bytes = count * sizeof(T);
        if (size_bytes > size_bytes_) {
            bytes_.reset();
            bytes_.reset(static_cast<std::byte*>(::operator new (size_bytes, std::align_val_t{kAlignment})));
            size_bytes_ = size_bytes;
        }
        return reinterpret_cast<T*>(bytes_.get());
    }

 private:
    struct Deleter {
        void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{kAlignment}); }
    };
    std::unique_ptr<std::byte, Deleter> bytes_;
    size_t size_bytes_ = 0;
};

const dnnl::engine& CpuEngine() {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
}

dnnl::memory::data_type DnnlType(DataType dtype) {
    return dtype == DataType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

/// One block's product: what a primitive is built from.
struct BlockProblem {
    int64_t m = 0, n = 0, k = 0;
    int64_t leading_a = 0, leading_b = 0, leading_c = 0;
    DataType input_dtype = DataType::kFloat32, output_dtype = DataType::kFloat32;
    bool transpose_a = false, transpose_b = false, accumulate = false, has_bias = false;

    bool operator==(const BlockProblem&) const = default;
};

/// Of the sizes alone: few problems share theirs.
struct BlockProblemHash {
    size_t operator()(const BlockProblem& problem) const {
        size_t hash = 0;
        for (const int64_t size :
             {problem.m, problem.n, problem.k, problem.leading_a, problem.leading_b, problem.leading_c}) {
            hash = (hash ^ static_cast<size_t>(size)) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
            hash ^= hash >> 32;
        }
        return hash;
    }
};

/// A oneDNN matmul for one block.
class BlockPrimitive {
 public:
    explicit BlockPrimitive(const BlockProblem& problem)
        : a_({problem.m, problem.k}, DnnlType(problem.input_dtype), Strides(problem.leading_a, problem.transpose_a)),
          b_({problem.k, problem.n}, DnnlType(problem.input_dtype), Strides(problem.leading_b, problem.transpose_b)),
          c_({problem.m, problem.n}, DnnlType(problem.output_dtype), Strides(problem.leading_c, false)) {
        if (problem.has_bias) {
            bias_ = dnnl::memory::desc({1, problem.n}, DnnlType(problem.input_dtype), Strides(problem.n, false));
        }
        dnnl::primitive_attr attr;
        attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (problem.accumulate) {
            dnnl::post_ops sum;
            sum.append_sum(1.0f);
            attr.set_post_ops(sum);
        }
        const SingleThreadScope single_thread;
#if DNNL_VERSION_MAJOR >= 3
        const auto description = problem.has_bias ? dnnl::matmul::primitive_desc(CpuEngine(), a_, b_, bias_, c_, attr)
                                                  : dnnl::matmul::primitive_desc(CpuEngine(), a_, b_, c_, attr);
#else
        const auto operation =
            problem.has_bias ? dnnl::matmul::desc(a_, b_, bias_, c_) : dnnl::matmul::desc(a_, b_, c_);
        const dnnl::matmul::primitive_desc description(operation, attr, CpuEngine());
#endif
        scratchpad_ = description.scratchpad_desc();
        matmul_ = dnnl::matmul(description);
    }

    void Run(const GemmOperands& operands) const {
        thread_local ScratchBuffer scratch;
        thread_local dnnl::stream stream(CpuEngine());
        const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
            return dnnl::memory(desc, CpuEngine(), const_cast<void*>(data));
        };
        std::unordered_map<int, dnnl::memory> arguments{
            {DNNL_ARG_SRC, memory(a_, operands.a)},
            {DNNL_ARG_WEIGHTS, memory(b_, operands.b)},
            {DNNL_ARG_DST, memory(c_, operands.c)},
            {DNNL_ARG_SCRATCHPAD, memory(scratchpad_, scratch.Get(scratchpad_.get_size()))},
        };
        if (operands.bias != nullptr) {
            arguments.emplace(DNNL_ARG_BIAS, memory(bias_, operands.bias));
        }
        const SingleThreadScope single_thread;
        matmul_.execute(stream, arguments);
        stream.wait();
    }

 private:
    static dnnl::memory::dims Strides(int64_t leading, bool transpose) {
        return transpose ? dnnl::memory::dims{1, leading} : dnnl::memory::dims{leading, 1};
    }

    dnnl::memory::desc a_, b_, c_, bias_, scratchpad_;
    dnnl::matmul matmul_;
};

/// The calling thread's primitives. A reference lives until the next MakeRoom.
class PrimitiveCache {
 public:
    static PrimitiveCache& OfThisThread() {
        thread_local PrimitiveCache cache;
        return cache;
    }
    void MakeRoom(size_t count) {
        if (primitives_.size() + count > kMaxCachedPrimitives) {
            primitives_.clear();
        }
    }
    const BlockPrimitive& Find(const BlockProblem& problem) {
        return primitives_.try_emplace(problem, problem).first->second;
    }

 private:
    std::unordered_map<BlockProblem, BlockPrimitive, BlockProblemHash> primitives_;
};

/// Whether oneDNN multiplies bfloat16 here; it refuses on CPUs without AVX-512.
bool HasBFloat16Matmul() {
    static const bool has = [] {
        try {
            BlockProblem probe{.m = 16, .n = 16, .k = 16, .leading_a = 16, .leading_b = 16, .leading_c = 16};
            probe.input_dtype = probe.output_dtype = DataType::kBFloat16;
            BlockPrimitive{probe};
            return true;
        } catch (const dnnl::error& error) {
            LOG(INFO) << "no bfloat16 matmul on this CPU (" << error.what() << "): widening to float32";
            return false;
        }
    }();
    return has;
}

int64_t CeilDiv(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/// [0, size) cut into as few blocks as `max_block` allows, of one length (a multiple of `multiple`) but for the last.
struct Partition {
    Partition(int64_t size, int64_t max_block, int64_t multiple)
        : size(size),
          block(CeilDiv(CeilDiv(size, CeilDiv(size, max_block)), multiple) * multiple),
          count(CeilDiv(size, block)) {}
    int64_t begin(int64_t index) const { return index * block; }
    int64_t length(int64_t index) const { return std::min(block, size - index * block); }
    int64_t size, block, count;
};

/// data + index, or null for null.
template <typename Void>
Void* At(Void* data, int64_t index, DataType dtype) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return data == nullptr ? nullptr : reinterpret_cast<Void*>(address + static_cast<uintptr_t>(index) * SizeOf(dtype));
}

float FloatAt(const void* data, int64_t index, DataType dtype) {
    return dtype == DataType::kFloat32 ? static_cast<const float*>(data)[index]
                                       : static_cast<float>(static_cast<const BFloat16*>(data)[index]);
}

/// A product without elements, or over an empty k: bias, or zero, or what was there.
void WriteEmptySum(const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands) {
    for (int64_t row = 0; row < shape.m; ++row) {
        void* const c = At(operands.c, row * options.leading_c, options.output_dtype);
        for (int64_t column = 0; column < shape.n; ++column) {
            const float value = operands.bias == nullptr ? 0.0f : FloatAt(operands.bias, column, options.input_dtype);
            if (options.output_dtype == DataType::kBFloat16) {
                static_cast<BFloat16*>(c)[column] = BFloat16(value);
            } else {
                float& element = static_cast<float*>(c)[column];
                element = options.accumulate ? element + value : value;
            }
        }
    }
}

/// `options` with explicit leading dimensions, checked.
GemmOptions Checked(const GemmShape& shape, GemmOptions options, const GemmOperands& operands) {
    CHECK(shape.m >= 0 && shape.n >= 0 && shape.k >= 0)
        << "Gemm: m " << shape.m << " n " << shape.n << " k " << shape.k;
    CHECK(IsFloat(options.input_dtype)) << "Gemm: input dtype " << Name(options.input_dtype);
    CHECK(options.output_dtype == DataType::kFloat32 ||
          (options.output_dtype == DataType::kBFloat16 && options.input_dtype == DataType::kBFloat16))
        << "Gemm: input dtype " << Name(options.input_dtype) << ", output dtype " << Name(options.output_dtype);
    CHECK(!options.accumulate || options.output_dtype == DataType::kFloat32) << "Gemm: accumulates into float32 only";
    const auto settle = [](int64_t& leading, int64_t width, const char* name) {
        leading = leading == 0 ? std::max<int64_t>(width, 1) : leading;
        CHECK_GE(leading, width) << "Gemm: leading dimension of " << name;
    };
    settle(options.leading_a, options.transpose_a ? shape.m : shape.k, "A");
    settle(options.leading_b, options.transpose_b ? shape.k : shape.n, "B");
    settle(options.leading_c, shape.n, "C");
    if (shape.m > 0 && shape.n > 0) {
        CHECK_NOTNULL(operands.c);
        CHECK(shape.k == 0 || (operands.a != nullptr && operands.b != nullptr)) << "Gemm: A or B is null";
    }
    return options;
}

/// Copies `rows` rows of bfloat16 into packed float32.
void Widen(const BFloat16* from, int64_t leading, int64_t rows, int64_t columns, float* to) {
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
            to[row * columns + column] = static_cast<float>(from[row * leading + column]);
        }
    }
}

/// A bfloat16 block on a CPU without the instruction: widened a stretch of k at a time, multiplied in float32.
void RunWidened(const BlockProblem& block, const GemmOperands& operands) {
    thread_local ScratchBuffer a_scratch, b_scratch, bias_scratch, c_scratch;
    const bool narrow = block.output_dtype == DataType::kBFloat16;
    float* const c =
        narrow ? c_scratch.Get<float>(static_cast<size_t>(block.m * block.n)) : static_cast<float*>(operands.c);
    float* bias = nullptr;
    if (block.has_bias) {
        bias = bias_scratch.Get<float>(static_cast<size_t>(block.n));
        Widen(static_cast<const BFloat16*>(operands.bias), block.n, 1, block.n, bias);
    }
    for (int64_t begin = 0; begin < block.k; begin += kWidenDepth) {
        BlockProblem part = block;
        part.k = std::min(kWidenDepth, block.k - begin);
        part.input_dtype = part.output_dtype = DataType::kFloat32;
        part.accumulate = block.accumulate || begin > 0;
        part.has_bias = block.has_bias && begin == 0;
        part.leading_a = block.transpose_a ? part.m : part.k;
        part.leading_b = block.transpose_b ? part.k : part.n;
        part.leading_c = narrow ? part.n : block.leading_c;
        float* const a = a_scratch.Get<float>(static_cast<size_t>(part.m * part.k));
        float* const b = b_scratch.Get<float>(static_cast<size_t>(part.k * part.n));
        Widen(static_cast<const BFloat16*>(operands.a) + (block.transpose_a ? begin * block.leading_a : begin),
              block.leading_a, block.transpose_a ? part.k : part.m, part.leading_a, a);
        Widen(static_cast<const BFloat16*>(operands.b) + (block.transpose_b ? begin : begin * block.leading_b),
              block.leading_b, block.transpose_b ? part.n : part.k, part.leading_b, b);
        PrimitiveCache& cache = PrimitiveCache::OfThisThread();
        cache.MakeRoom(1);
        cache.Find(part).Run({.a = a, .b = b, .bias = part.has_bias ? bias : nullptr, .c = c});
    }
    for (int64_t row = 0; narrow && row < block.m; ++row) {
        BFloat16* const to = static_cast<BFloat16*>(operands.c) + row * block.leading_c;
        std::transform(c + row * block.n, c + (row + 1) * block.n, to, [](float value) { return BFloat16(value); });
    }
}

/// C and how it is cut: a grid of blocks, numbered down the columns so that neighbours share a panel of B.
class BlockGrid {
 public:
    BlockGrid(const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands)
        : shape_(shape),
          options_(options),
          operands_(operands),
          rows_(shape.m, kMaxRows, kRowMultiple),
          columns_(shape.n, MaxColumns(shape.n, rows_.count), kColumnMultiple) {}

    int64_t count() const { return rows_.count * columns_.count; }

    BlockProblem ProblemOf(int64_t block) const {
        return {.m = rows_.length(block % rows_.count),
                .n = columns_.length(block / rows_.count),
                .k = shape_.k,
                .leading_a = options_.leading_a,
                .leading_b = options_.leading_b,
                .leading_c = options_.leading_c,
                .input_dtype = options_.input_dtype,
                .output_dtype = options_.output_dtype,
                .transpose_a = options_.transpose_a,
                .transpose_b = options_.transpose_b,
                .accumulate = options_.accumulate,
                .has_bias = operands_.bias != nullptr};
    }

    GemmOperands OperandsOf(int64_t block) const {
        const int64_t m = rows_.begin(block % rows_.count);
        const int64_t n = columns_.begin(block / rows_.count);
        return {.a = At(operands_.a, options_.transpose_a ? m : m * options_.leading_a, options_.input_dtype),
                .b = At(operands_.b, options_.transpose_b ? n * options_.leading_b : n, options_.input_dtype),
                .bias = At(operands_.bias, n, options_.input_dtype),
                .c = At(operands_.c, m * options_.leading_c + n, options_.output_dtype)};
    }

    /// Blocks of one kind have one problem: 0 interior, 1 last row, 2 last column, 3 corner.
    size_t KindOf(int64_t block) const {
        return (block % rows_.count == rows_.count - 1 ? 1u : 0u) +
               (block / rows_.count == columns_.count - 1 ? 2u : 0u);
    }

    /// A block of each kind: the four corners of the grid.
    std::array<int64_t, 4> Corners() const { return {0, rows_.count - 1, count() - rows_.count, count() - 1}; }

 private:
    static int64_t MaxColumns(int64_t n, int64_t num_row_blocks) {
        return num_row_blocks * CeilDiv(n, kWideColumns) >= kFewBlocks ? kWideColumns : kNarrowColumns;
    }

    GemmShape shape_;
    GemmOptions options_;
    GemmOperands operands_;
    Partition rows_, columns_;
};

}  // namespace

void Gemm(const GemmShape& shape, const GemmOptions& given, const GemmOperands& operands) {
    const GemmOptions options = Checked(shape, given, operands);
    if (shape.m == 0 || shape.n == 0 || shape.k == 0) {
        WriteEmptySum(shape, options, operands);
        return;
    }
    const BlockGrid grid(shape, options, operands);
    const int64_t num_blocks = grid.count();
    const bool parallel = num_blocks > 1 && shape.m * shape.n * shape.k >= kSerialWork;
    const bool widen = options.input_dtype == DataType::kBFloat16 && !HasBFloat16Matmul();
    std::array<const BlockPrimitive*, 4> primitives{};
    if (!widen) {
        PrimitiveCache& cache = PrimitiveCache::OfThisThread();
        cache.MakeRoom(primitives.size());
        for (const int64_t block : grid.Corners()) {
            primitives[grid.KindOf(block)] = &cache.Find(grid.ProblemOf(block));
        }
    }
#pragma omp parallel for schedule(dynamic) if (parallel)
    for (int64_t block = 0; block < num_blocks; ++block) {
        if (widen) {
            RunWidened(grid.ProblemOf(block), grid.OperandsOf(block));
        } else {
            primitives[grid.KindOf(block)]->Run(grid.OperandsOf(block));
        }
    }
}

}  // namespace infini_train::kernels::cpu
