#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "infini_train/include/core/allocator.h"

namespace infini_train {

enum class DeviceType { kCPU, kCUDA };
inline constexpr int kNumDeviceTypes = 2;

/// "cpu", "cuda"
std::string_view Name(DeviceType type);

/// Where a rank computes, and the memory it takes from there. Each rank makes its own: its tensors then count on its
/// allocator.
struct Device {
    DeviceType type = DeviceType::kCPU;
    int index = 0;
    std::shared_ptr<Allocator> allocator;
};

/// A CPU device with an allocator of its own.
Device MakeCpuDevice();
/// "cpu", "cuda:1"
std::string ToString(const Device& device);
/// The same hardware; the allocators may differ.
bool operator==(const Device& a, const Device& b);

}  // namespace infini_train
