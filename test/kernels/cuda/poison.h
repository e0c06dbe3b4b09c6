#pragma once

#include <limits>
#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/fill.h"

namespace infini_train::test {

/// Leaves NaN in the free memory that the next tensors of this size get, so that an element which a kernel forgets to
/// write is seen.
inline void PoisonFreeMemory(const Shape& shape, DataType dtype, const Device& device) {
    TensorList tensors;
    for (int i = 0; i < 3; ++i) {  // no kernel has more outputs
        tensors.push_back(Tensor::Empty(shape, dtype, device));
        kernels::fill(device.type, *tensors.back(), std::numeric_limits<float>::quiet_NaN());
    }
}

}  // namespace infini_train::test
