#include <cstdlib>

#include "nvtx3/nvToolsExt.h"

#include "infini_train/src/core/cuda/cuda_allocator.h"
#include "infini_train/src/core/cuda/cuda_check.h"
#include "infini_train/src/core/cuda_backend.h"

namespace infini_train::cuda {
namespace {

int NumDevices() {
    int num_devices = 0;
    // Without a driver or a GPU there is none, which is no error.
    if (cudaGetDeviceCount(&num_devices) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return num_devices;
}

std::string NameOf(int index) {
    cudaDeviceProp properties = {};
    INFINI_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    return properties.name;
}

std::shared_ptr<Allocator> MakeAllocator(int index) {
    INFINI_CUDA_CHECK(cudaSetDevice(index));
    return std::make_shared<CudaAllocator>(index);
}

std::unique_ptr<Stream> MakeStream(int index) {
    return std::make_unique<CudaStream>(index);
}

void BeginRange(const std::string& name) {
    nvtxRangePushA(name.c_str());
}

void EndRange() {
    nvtxRangePop();
}

// Runs when the library is loaded, before main and before the first call of CUDA.
[[maybe_unused]] const bool registered = [] {
    // With fewer queues than streams, streams of the pipeline's edges would wait for each other.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
    cuda_backend = {.num_devices = NumDevices,
                    .name = NameOf,
                    .make_allocator = MakeAllocator,
                    .make_stream = MakeStream,
                    .begin_range = BeginRange,
                    .end_range = EndRange};
    return true;
}();

}  // namespace
}  // namespace infini_train::cuda
