#pragma once

#include <cstdint>

#include "glog/logging.h"

#include "infini_train/include/core/tensor.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

// What the norms of the residual stream have in common.

namespace infini_train::kernels::cpu {

/// An operand that is there has the shape and dtype of x.
inline void CheckLike(const char* kernel, const Tensor& x, const char* name, const Tensor* operand) {
    CHECK(operand == nullptr || (operand->shape() == x.shape() && operand->dtype() == x.dtype()))
        << kernel << ": " << name << " " << ToString(operand->shape()) << " " << Name(operand->dtype()) << ", x "
        << ToString(x.shape()) << " " << Name(x.dtype());
}

/// sum = x + branch, with the bits of the kernel add.
template <typename T>
void AddRow(const T* x, const T* branch, int64_t num_columns, T* sum) {
#pragma omp simd
    for (int64_t c = 0; c < num_columns; ++c) {
        Store(static_cast<float>(x[c]) + static_cast<float>(branch[c]), sum[c]);
    }
}

}  // namespace infini_train::kernels::cpu
