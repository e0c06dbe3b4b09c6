#include "infini_train/include/core/device.h"

namespace infini_train {

std::string_view Name(DeviceType type) {
    return type == DeviceType::kCPU ? "cpu" : "cuda";
}

Device MakeCpuDevice() {
    return {.type = DeviceType::kCPU, .allocator = std::make_shared<CachingCpuAllocator>()};
}

std::string ToString(const Device& device) {
    std::string text(Name(device.type));
    return device.type == DeviceType::kCPU ? text : text + ":" + std::to_string(device.index);
}

bool operator==(const Device& a, const Device& b) {
    return a.type == b.type && a.index == b.index;
}

}  // namespace infini_train
