#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "infini_train/include/core/allocator.h"

namespace infini_train {

/// kMeta computes nothing: its tensors have shapes, dtypes and sizes, but no values. A model that runs there says what
/// it makes of an input and what memory that takes.
enum class DeviceType { kCPU, kCUDA, kMeta };
inline constexpr int kNumDeviceTypes = 3;

/// "cpu", "cuda", "meta"
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
/// A device without values, with an allocator that counts what a CPU device's would.
Device MakeMetaDevice();
/// "cpu", "cuda:1", "meta"
std::string ToString(const Device& device);
/// The same hardware; the allocators may differ.
bool operator==(const Device& a, const Device& b);

}  // namespace infini_train
