#pragma once

#include <cstdint>
#include <vector>

#include "infini_train/include/core/tensor.h"

namespace infini_train::comm {

/// float32, int64
bool CanSum(DataType dtype);

/// Elements [begin, end) of each of the tensors become their sum, ((x0 + x1) + x2) + ... All have the same number of
/// elements and the same dtype.
void SumInRankOrder(const std::vector<Tensor*>& copies, int64_t begin, int64_t end);

}  // namespace infini_train::comm
