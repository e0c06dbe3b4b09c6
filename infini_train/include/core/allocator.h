#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace infini_train {

/// Memory of one rank on one device. Thread-safe: a block may be freed by another thread than the one that took it.
class Allocator {
 public:
    struct Stats {
        int64_t live_bytes = 0;           // handed out now
        int64_t peak_bytes = 0;           // the most there ever was, since ResetPeak
        int64_t reserved_bytes = 0;       // taken from the system
        int64_t num_system_requests = 0;  // times the system was asked
    };

    Allocator() = default;
    Allocator(const Allocator&) = delete;
    Allocator& operator=(const Allocator&) = delete;
    virtual ~Allocator() = default;

    /// At least size_bytes, aligned to kAlignment; null for 0 bytes. Throws Error when the system has none left.
    virtual void* Allocate(size_t size_bytes) = 0;
    virtual void Free(void* data) = 0;
    virtual Stats stats() const = 0;

    /// For a block that is handed over to another rank (Storage::CountOn): it stays a block of this allocator until it
    /// is freed, but is no longer live here. Returns its bytes, 0 for null. Once a block.
    virtual int64_t StopCounting(void* data) = 0;
    /// Adds such bytes to what is live here; negative at their end.
    virtual void CountHandedOver(int64_t size_bytes) = 0;

    /// From now on the peak is measured from what is live now.
    virtual void ResetPeak() = 0;

    static constexpr size_t kAlignment = 256;  // whole cache lines, and the widest vector load on any device
};

/// Host memory: segments of whole 2 MiB pages (MADV_HUGEPAGE: first touches by 4 KiB pages cost three times as much),
/// cut by best fit and joined again when freed. Segments go back to the system with the allocator.
class CachingCpuAllocator : public Allocator {
 public:
    CachingCpuAllocator() = default;
    ~CachingCpuAllocator() override;

    void* Allocate(size_t size_bytes) override;
    void Free(void* data) override;
    Stats stats() const override;
    int64_t StopCounting(void* data) override;
    void CountHandedOver(int64_t size_bytes) override;
    void ResetPeak() override;

 private:
    struct Segment {
        void* mapping = nullptr;
        size_t mapping_bytes = 0;
    };
    struct Block {
        size_t size_bytes = 0;
        bool is_free = false;
        bool starts_segment = false;
        bool counts_elsewhere = false;  // handed over
    };
    using BlockMap = std::map<char*, Block>;  // by address: the neighbours of a block are its neighbours in the map

    /// Takes one free block of so many bytes from the system.
    void AddSegment(size_t size_bytes);
    /// CHECKs that it was handed out and is not free.
    BlockMap::iterator FindTaken(void* data);

    mutable std::mutex mutex_;
    BlockMap blocks_;
    std::set<std::pair<size_t, char*>> free_blocks_;  // by size, then address: best fit, and the same choice every time
    std::vector<Segment> segments_;
    Stats stats_;
};

}  // namespace infini_train
