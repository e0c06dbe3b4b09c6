#include "infini_train/include/core/device.h"

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/core/caching_allocator.h"
#include "infini_train/include/core/meta_allocator.h"
#include "infini_train/src/core/cuda_backend.h"

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

Device MakeCudaDevice(int index) {
    const int num_devices = NumCudaDevices();
    if (index < 0 || index >= num_devices) {
        throw Error({.where = "device cuda:" + std::to_string(index),
                     .what = "there is no such GPU",
                     .got = HasCuda() ? std::to_string(num_devices) + " GPUs" : "a build without CUDA"});
    }
    return {.type = DeviceType::kCUDA, .index = index, .allocator = cuda_backend.make_allocator(index)};
}

std::unique_ptr<Stream> MakeCudaStream(int index) {
    CHECK(cuda_backend.make_stream != nullptr);
    return cuda_backend.make_stream(index);
}

int NumCudaDevices() {
    return HasCuda() ? cuda_backend.num_devices() : 0;
}

std::string HardwareName(const Device& device) {
    return device.type == DeviceType::kCUDA ? cuda_backend.name(device.index) : "";
}

bool HasCuda() {
    return cuda_backend.num_devices != nullptr;
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
