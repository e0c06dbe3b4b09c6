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
/// A GPU for the calling thread, which becomes its CUDA device, with a stream and an allocator of its own. Throws Error
/// where this build or this machine has no such GPU.
Device MakeCudaDevice(int index);
/// A further stream on a GPU, for what runs beside the computation.
std::unique_ptr<Stream> MakeCudaStream(int index);
/// The GPUs of this machine that this build can use; 0 in a build without CUDA.
int NumCudaDevices();
/// "NVIDIA H200"; empty for a device without a name.
std::string HardwareName(const Device& device);
/// Whether this build can use GPUs at all.
bool HasCuda();

/// A device without values, with an allocator that counts what a CPU device's would.
Device MakeMetaDevice();
/// "cpu", "cuda:1", "meta"
std::string ToString(const Device& device);
/// The order of a device's work; null where it computes at once.
inline Stream* StreamOf(const Device& device) {
    return device.allocator->stream();
}
/// The same hardware; the allocators may differ.
bool operator==(const Device& a, const Device& b);

}  // namespace infini_train
