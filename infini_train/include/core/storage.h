#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "infini_train/include/core/allocator.h"

namespace infini_train {

/// A block of an allocator, given back to it at the end, by whatever thread. Tensors and their views share one.
class Storage {
 public:
    Storage(std::shared_ptr<Allocator> allocator, size_t size_bytes);
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;
    ~Storage();

    void* data() const { return data_; }
    size_t size_bytes() const { return size_bytes_; }

    /// From now to its end the block is live on this allocator and on no other, and work of that one's stream uses it.
    /// Threads may call it at the same time.
    void CountOn(const std::shared_ptr<Allocator>& allocator);
    /// Another stream uses the block until the event. Threads may call it at the same time.
    void UsedUntil(std::shared_ptr<const Event> event);

 private:
    std::shared_ptr<Allocator> allocator_;  // that the block comes from
    size_t size_bytes_;
    void* data_;

    std::mutex mutex_;                      // over what follows
    std::shared_ptr<Allocator> counts_on_;  // null until the block is handed over
    int64_t handed_over_bytes_ = 0;
    EventList last_uses_;
};

}  // namespace infini_train
