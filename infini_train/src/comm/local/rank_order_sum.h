#pragma once

#include <cstdint>
#include <vector>

#include "infini_train/include/core/tensor.h"

namespace infini_train::comm {

/// float32, int64
bool CanSum(DataType dtype);

/// sum = sum + x on the stream of their device. Same dtype and number of elements.
void AddOnStream(const Tensor& x, Tensor& sum);

/// How CUDA adds: written before main by comm/local/cuda/, null in a build without it.
using AddOnStreamFunction = void(const Tensor& x, Tensor& sum);
inline constinit AddOnStreamFunction* add_on_cuda = nullptr;

/// Elements [begin, end) of each of the tensors become their sum, ((x0 + x1) + x2) + ... All have the same number of
/// elements and the same dtype.
void SumInRankOrder(const std::vector<Tensor*>& copies, int64_t begin, int64_t end);

}  // namespace infini_train::comm
