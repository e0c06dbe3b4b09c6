#include "infini_train/include/core/allocator.h"

#include <string>

namespace infini_train {

OutOfMemory::OutOfMemory(const std::string& where, const Numbers& numbers)
    : Error({.where = where,
             .what = "out of memory",
             .got = std::to_string(numbers.reserved_bytes) + " bytes in use" +
                    (numbers.free_bytes < 0 ? "" : ", " + std::to_string(numbers.free_bytes) + " bytes free"),
             .wanted = std::to_string(numbers.wanted_bytes) + " bytes more",
             .kind = Error::Kind::kRuntime}),
      numbers_(numbers) {}

}  // namespace infini_train
