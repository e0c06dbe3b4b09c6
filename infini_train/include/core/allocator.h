#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/include/common/error.h"
#include "infini_train/include/core/stream.h"

namespace infini_train {

/// The Error of a device that has no more memory, with the numbers for whoever can say more.
class OutOfMemory : public Error {
 public:
    struct Numbers {
        uint64_t wanted_bytes = 0;   // more
        int64_t free_bytes = -1;     // on the device, whoever else uses it; -1: not known
        int64_t reserved_bytes = 0;  // of this allocator
    };
    /// where: "host memory", "cuda:0"
    OutOfMemory(const std::string& where, const Numbers& numbers);

    const Numbers& numbers() const { return numbers_; }

 private:
    Numbers numbers_;
};

using WithheldBlocks = std::vector<void*>;

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

    /// The order of this rank's work: a block that is freed is handed out again for work enqueued later. Null for a
    /// device without streams.
    virtual Stream* stream() { return nullptr; }

    /// At least size_bytes, aligned to kAlignment; null for 0 bytes. Throws OutOfMemory.
    virtual void* Allocate(size_t size_bytes) = 0;
    /// Work of other streams that uses the block ends with the events: the stream waits for them before the block is
    /// used again.
    virtual void Free(void* data, EventList last_uses) = 0;
    void Free(void* data) { Free(data, {}); }
    virtual Stats stats() const = 0;

    /// For a block that is handed over to another rank (Storage::CountOn): it stays a block of this allocator until it
    /// is freed, but is no longer live here. Returns its bytes, 0 for null. Once a block.
    virtual int64_t StopCounting(void* data) = 0;
    /// Adds such bytes to what is live here; negative at their end.
    virtual void CountHandedOver(int64_t size_bytes) = 0;

    /// Takes all blocks that are free now out of use, and gives them back.
    virtual WithheldBlocks WithholdFreeBlocks() = 0;
    virtual void ReturnWithheld(const WithheldBlocks& blocks) = 0;

    /// From now on the peak is measured from what is live now.
    virtual void ResetPeak() = 0;

    static constexpr size_t kAlignment = 256;  // whole cache lines, and the widest vector load on any device
};

}  // namespace infini_train
