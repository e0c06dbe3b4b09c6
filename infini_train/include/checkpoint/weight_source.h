#pragma once

#include <cstdint>
#include <string>

#include "infini_train/include/core/dtype.h"
#include "infini_train/include/core/shape.h"

namespace infini_train::checkpoint {

/// Where the weights of a model come from, by the names, the shapes and in the order of rows of our state dicts,
/// whatever the format of the files. Opened and checked already; reading a tensor, or some rows of it, touches the
/// bytes of those alone. Threads may read at the same time.
class WeightSource {
 public:
    WeightSource() = default;
    WeightSource(const WeightSource&) = default;
    WeightSource& operator=(const WeightSource&) = default;
    virtual ~WeightSource() = default;

    /// The file, or the folder, for messages.
    virtual const std::string& path() const = 0;
    /// bfloat16 when all tensors are stored so, else float32: the smallest that holds any of them exactly.
    virtual DataType dtype() const = 0;
    virtual bool Contains(const std::string& name) const = 0;
    /// These throw Error when there is no such tensor.
    virtual const Shape& shape(const std::string& name) const = 0;
    /// Rows [begin, end) of the first axis, widened to float32.
    virtual void ReadRows(const std::string& name, int64_t begin, int64_t end, float* destination) const = 0;
};

}  // namespace infini_train::checkpoint
