#pragma once

#include <cstdint>

#include "infini_train/include/core/device.h"
#include "infini_train/include/core/dtype.h"

namespace infini_train::kernels::cuda {

/// C is [m, n], op(A) is [m, k], op(B) is [k, n]; any of them may be 0.
struct GemmShape {
    int64_t m = 0;
    int64_t n = 0;
    int64_t k = 0;
};

struct GemmOptions {
    bool transpose_a = false;                    // A is stored [k, m]
    bool transpose_b = false;                    // B is stored [n, k]: how a linear layer keeps its weight
    bool accumulate = false;                     // add to what C holds, which is float32
    DataType input_dtype = DataType::kFloat32;   // of A and B: float32 or bfloat16
    DataType output_dtype = DataType::kFloat32;  // of C: float32, or bfloat16 if the inputs are bfloat16
};

/// Memory of the device, row-major, rows packed. C overlaps none of the others. A pointer may be null where its matrix
/// has no elements, and the last three where there is nothing to fuse; they have the dtype of C.
struct GemmOperands {
    const void* a = nullptr;
    const void* b = nullptr;
    void* c = nullptr;
    const void* bias = nullptr;  // [n], added to every row
    void* pre_output = nullptr;  // [m, n]: gets the sums with the bias, and C gets their gelu
    const void* pre = nullptr;   // [m, n]: C is multiplied by the derivative of gelu there; not with another one
};

/// C = op(A) op(B) (+ C where `accumulate`), with what the operands ask for on top; sums in float32, rounded once to
/// the dtype of C. On the compute stream of the device. The bits depend on the shape, the options, the alignment (up to
/// 16 bytes) and the values. False, with nothing done, where the library cannot do what is on top for these sizes and
/// pointers; gelu is for bfloat16 alone.
[[nodiscard]] bool TryGemm(const Device& device, const GemmShape& shape, const GemmOptions& options,
                           const GemmOperands& operands);
/// The same with nothing on top. Throws Error where the library cannot do even that.
void Gemm(const Device& device, const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands);

}  // namespace infini_train::kernels::cuda
