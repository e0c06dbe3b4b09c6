#include "infini_train/include/core/device.h"

#include "glog/logging.h"

#include "infini_train/include/core/meta_allocator.h"

namespace infini_train {

std::string_view Name(DeviceType type) {
    switch (type) {
        case DeviceType::kCPU:
            return "cpu";
        case DeviceType::kCUDA:
            return "cuda";
        case DeviceType::kMeta:
            return "meta";
    }
    LOG(FATAL) << "unknown device type " << static_cast<int>(type);
    return "";
}

Device MakeCpuDevice() {
    return {.type = DeviceType::kCPU, .allocator = std::make_shared<CachingCpuAllocator>()};
}

Device MakeMetaDevice() {
    return {.type = DeviceType::kMeta, .allocator = std::make_shared<MetaAllocator>()};
}

std::string ToString(const Device& device) {
    std::string text(Name(device.type));
    return device.type == DeviceType::kCUDA ? text + ":" + std::to_string(device.index) : text;
}

bool operator==(const Device& a, const Device& b) {
    return a.type == b.type && a.index == b.index;
}

}  // namespace infini_train
