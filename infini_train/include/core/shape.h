#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace infini_train {

/// Extents, slowest axis first. An empty shape is one element.
using Shape = std::vector<int64_t>;

/// Product of the extents. CHECKs that none is negative and that the product fits int64_t.
int64_t NumElements(const Shape& shape);
/// "[2, 3]"
std::string ToString(const Shape& shape);

}  // namespace infini_train
