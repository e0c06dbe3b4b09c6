#pragma once

#include <cstdint>

#include "infini_train/include/core/dtype.h"

namespace infini_train::kernels::cpu {

/// C is [m, n], op(A) is [m, k], op(B) is [k, n]; any of them may be 0.
struct GemmShape {
    int64_t m = 0;
    int64_t n = 0;
    int64_t k = 0;
};

struct GemmOptions {
    bool transpose_a = false;                    // A is stored [k, m]
    bool transpose_b = false;                    // B is stored [n, k]: how a linear layer keeps its weight
    bool accumulate = false;                     // add to what C holds; needs a float32 C
    DataType input_dtype = DataType::kFloat32;   // of A, B and bias: float32 or bfloat16
    DataType output_dtype = DataType::kFloat32;  // of C: float32, or bfloat16 if the input is bfloat16
    int64_t leading_a = 0;                       // elements between two stored rows; 0: the rows are packed
    int64_t leading_b = 0;
    int64_t leading_c = 0;
};

/// Host memory, row-major. C overlaps none of the others. A pointer may be null where its matrix has no elements.
struct GemmOperands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;  // [n], or null for none
    void* c = nullptr;
};

/// C = op(A) op(B) (+ bias on every row) (+ C where `accumulate`); sums in float32, rounded once to the dtype of C.
///
/// Runs on the OpenMP threads of the caller (omp_get_max_threads). The bits of C depend on the shape, the options and
/// the values, never on the number of threads. May be called from several threads at once.
/// Misuse is a bug of the caller's: CHECK.
///
/// While it runs, a signal handler may run on its threads only on a stack of its own (sigaltstack, SA_ONSTACK):
/// oneDNN's code has its stack pointer in a buffer on the heap, and a handler's frame would be written below it.
void Gemm(const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands);

}  // namespace infini_train::kernels::cpu
