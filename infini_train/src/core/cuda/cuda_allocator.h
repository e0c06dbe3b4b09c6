#pragma once

#include <memory>

#include "infini_train/include/core/caching_allocator.h"
#include "infini_train/src/core/cuda/cuda_stream.h"

namespace infini_train::cuda {

/// Memory of one GPU for one rank, in the order of the rank's compute stream, which it owns.
class CudaAllocator : public CachingAllocator {
 public:
    explicit CudaAllocator(int index);
    ~CudaAllocator() override;

    Stream* stream() override { return &stream_; }

 protected:
    void* TakeSegment(size_t size_bytes) override;
    void ReturnSegment(void* segment, size_t size_bytes) override;
    int64_t FreeBytes() const override;

 private:
    CudaStream stream_;
};

}  // namespace infini_train::cuda
