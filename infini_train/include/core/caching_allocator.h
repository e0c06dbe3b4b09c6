#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "infini_train/include/core/allocator.h"

namespace infini_train {

/// Segments of a system's memory, cut by best fit and joined again when freed. They go back to the system when it has
/// no more, or with the allocator.
class CachingAllocator : public Allocator {
 public:
    void* Allocate(size_t size_bytes) override;
    using Allocator::Free;
    void Free(void* data, EventList last_uses) override;
    Stats stats() const override;
    int64_t StopCounting(void* data) override;
    void CountHandedOver(int64_t size_bytes) override;
    WithheldBlocks WithholdFreeBlocks() override;
    void ReturnWithheld(const WithheldBlocks& blocks) override;
    void ResetPeak() override;

 protected:
    /// where: of its errors. Segments have at least min_segment_bytes and are whole multiples of granule_bytes.
    CachingAllocator(std::string where, size_t granule_bytes, size_t min_segment_bytes);

    /// Memory aligned to kAlignment; null when there is none.
    virtual void* TakeSegment(size_t size_bytes) = 0;
    virtual void ReturnSegment(void* segment, size_t size_bytes) = 0;
    /// What the device has left, -1 where nobody knows.
    virtual int64_t FreeBytes() const = 0;
    /// For the destructor of a subclass.
    void ReturnAllSegments();

 private:
    struct Block {
        size_t size_bytes = 0;
        bool is_free = false;
        bool starts_segment = false;
        bool counts_elsewhere = false;  // handed over
        EventList last_uses = {};       // of a free block: to be waited for
    };
    using BlockMap = std::map<char*, Block>;  // by address: the neighbours of a block are its neighbours in the map

    /// Takes one free block of at least so many bytes from the system.
    void AddSegment(size_t size_bytes);
    /// Gives back the segments that are free from end to end; false when there is none.
    bool ReturnFreeSegments();
    /// CHECKs that it was handed out and is not free.
    BlockMap::iterator FindTaken(void* data);
    /// A taken block becomes free, with its neighbours.
    void Release(BlockMap::iterator block);
    /// The second block, free and next to the first, becomes a part of it.
    void Join(BlockMap::iterator first, BlockMap::iterator second);

    std::string where_;
    size_t granule_bytes_;
    size_t min_segment_bytes_;
    mutable std::mutex mutex_;
    BlockMap blocks_;
    std::set<std::pair<size_t, char*>> free_blocks_;  // by size, then address: best fit, and the same choice every time
    std::map<void*, size_t> segments_;                // bytes
    Stats stats_;
};

/// Host memory, in whole 2 MiB pages (MADV_HUGEPAGE: first touches by 4 KiB pages cost three times as much).
class CachingCpuAllocator : public CachingAllocator {
 public:
    CachingCpuAllocator();
    ~CachingCpuAllocator() override;

 protected:
    void* TakeSegment(size_t size_bytes) override;
    void ReturnSegment(void* segment, size_t size_bytes) override;
    int64_t FreeBytes() const override { return -1; }

 private:
    std::map<void*, std::pair<void*, size_t>> mappings_;  // of a segment: where it was mapped, and how many bytes
};

}  // namespace infini_train
