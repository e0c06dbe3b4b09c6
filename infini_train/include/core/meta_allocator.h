#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "infini_train/include/core/allocator.h"

namespace infini_train {

/// Counts what a CachingCpuAllocator would hand out, and hands out addresses that no process can read or write. Nothing
/// is taken from the system. Throws Error for more bytes than there are such addresses (32 PiB).
class MetaAllocator : public Allocator {
 public:
    MetaAllocator() = default;
    ~MetaAllocator() override;

    void* Allocate(size_t size_bytes) override;
    using Allocator::Free;
    void Free(void* data, EventList last_uses) override;
    Stats stats() const override;
    int64_t StopCounting(void* data) override;
    void CountHandedOver(int64_t size_bytes) override;
    WithheldBlocks WithholdFreeBlocks() override { return {}; }  // none is kept
    void ReturnWithheld(const WithheldBlocks& blocks) override;
    void ResetPeak() override;

 private:
    struct Block {
        int64_t size_bytes = 0;
        bool counts_elsewhere = false;  // handed over
    };
    using BlockMap = std::map<uintptr_t, Block>;  // what is taken, by address

    /// CHECKs that it was handed out and not freed.
    BlockMap::iterator FindTaken(void* data);

    mutable std::mutex mutex_;
    BlockMap blocks_;
    Stats stats_;
};

}  // namespace infini_train
