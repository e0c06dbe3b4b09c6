#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "infini_train/include/core/tensor.h"

namespace infini_train::kernels {

struct LossCase {
    int64_t num_rows = 0;
    int64_t vocab_size = 0;
    int64_t padded_size = 0;
};

inline void PrintTo(const LossCase& c, std::ostream* os) {
    *os << "N " << c.num_rows << " V " << c.vocab_size << " of " << c.padded_size;
}

inline void SetElement(Tensor& tensor, int64_t index, float value) {
    if (tensor.dtype() == DataType::kBFloat16) {
        tensor.data<BFloat16>()[index] = BFloat16(value);
    } else {
        tensor.data<float>()[index] = value;
    }
}

inline void SetPadding(Tensor& logits, const LossCase& size, float value) {
    for (int64_t n = 0; n < size.num_rows; ++n) {
        for (int64_t v = size.vocab_size; v < size.padded_size; ++v) {
            SetElement(logits, n * size.padded_size + v, value);
        }
    }
}

/// Every third row is ignored; the others have targets from all over the vocabulary, its last one among them.
inline std::shared_ptr<Tensor> MakeTargets(const LossCase& size, int32_t ignore_index, const Device& device) {
    std::vector<int32_t> targets;
    for (int64_t n = 0; n < size.num_rows; ++n) {
        const int64_t target = n % 3 == 1 ? size.vocab_size - 1 : n * 7919 % size.vocab_size;
        targets.push_back(n % 3 == 2 ? ignore_index : static_cast<int32_t>(target));
    }
    return Tensor::FromVector(targets, {size.num_rows}, device);
}

}  // namespace infini_train::kernels
