#include "infini_train/include/core/shape.h"

#include "glog/logging.h"

namespace infini_train {

int64_t NumElements(const Shape& shape) {
    int64_t num_elements = 1;
    for (const int64_t extent : shape) {
        CHECK_GE(extent, 0) << "shape " << ToString(shape);
        CHECK(!__builtin_mul_overflow(num_elements, extent, &num_elements)) << "shape " << ToString(shape);
    }
    return num_elements;
}

std::string ToString(const Shape& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return text + "]";
}

}  // namespace infini_train
