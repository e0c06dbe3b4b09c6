#include "infini_train/include/core/dtype.h"

#include "glog/logging.h"

namespace infini_train {

size_t SizeOf(DataType dtype) {
    switch (dtype) {
        case DataType::kFloat32:
        case DataType::kInt32:
            return 4;
        case DataType::kBFloat16:
        case DataType::kUInt16:
            return 2;
        case DataType::kInt64:
            return 8;
        case DataType::kUInt8:
            return 1;
    }
    LOG(FATAL) << "unknown data type " << static_cast<int>(dtype);
    return 0;
}

std::string_view Name(DataType dtype) {
    switch (dtype) {
        case DataType::kFloat32:
            return "float32";
        case DataType::kBFloat16:
            return "bfloat16";
        case DataType::kInt32:
            return "int32";
        case DataType::kInt64:
            return "int64";
        case DataType::kUInt8:
            return "uint8";
        case DataType::kUInt16:
            return "uint16";
    }
    LOG(FATAL) << "unknown data type " << static_cast<int>(dtype);
    return "";
}

}  // namespace infini_train
