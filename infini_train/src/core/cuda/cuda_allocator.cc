#include "infini_train/src/core/cuda/cuda_allocator.h"

#include <string>

#include "infini_train/src/core/cuda/cuda_check.h"

namespace infini_train::cuda {
namespace {

constexpr size_t kGranuleBytes = size_t{2} << 20;      // pages of the GPU
constexpr size_t kMinSegmentBytes = size_t{32} << 20;  // many small tensors share a segment

}  // namespace

CudaAllocator::CudaAllocator(int index)
    : CachingAllocator("cuda:" + std::to_string(index), kGranuleBytes, kMinSegmentBytes), stream_(index) {}

CudaAllocator::~CudaAllocator() {
    ReturnAllSegments();
}

void* CudaAllocator::TakeSegment(size_t size_bytes) {
    const DeviceGuard guard(stream_.index());
    void* segment = nullptr;
    const cudaError_t error = cudaMalloc(&segment, size_bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // it is handled: the next check must not see it
        return nullptr;
    }
    INFINI_CUDA_CHECK(error);
    return segment;
}

void CudaAllocator::ReturnSegment(void* segment, size_t /*size_bytes*/) {
    const DeviceGuard guard(stream_.index());
    INFINI_CUDA_LOG(cudaFree(segment));
}

int64_t CudaAllocator::FreeBytes() const {
    const DeviceGuard guard(stream_.index());
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    INFINI_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    return static_cast<int64_t>(free_bytes);
}

}  // namespace infini_train::cuda
