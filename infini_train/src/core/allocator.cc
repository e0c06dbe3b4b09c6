#include "infini_train/include/core/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"

namespace infini_train {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kMinSegmentBytes = size_t{32} << 20;  // many small tensors share a segment

size_t RoundUp(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

[[noreturn]] void ThrowOutOfMemory(size_t wanted_bytes, int64_t reserved_bytes) {
    throw Error({.where = "host memory",
                 .what = "out of memory",
                 .got = std::to_string(reserved_bytes) + " bytes in use",
                 .wanted = std::to_string(wanted_bytes) + " bytes more",
                 .kind = Error::Kind::kRuntime});
}

}  // namespace

CachingCpuAllocator::~CachingCpuAllocator() {
    LOG_IF(ERROR, stats_.live_bytes != 0) << "allocator ends with " << stats_.live_bytes << " bytes still in use";
    for (const Segment& segment : segments_) {
        munmap(segment.mapping, segment.mapping_bytes);
    }
}

void CachingCpuAllocator::AddSegment(size_t size_bytes) {
    // mmap aligns to 4 KiB: map one huge page more and start at the first boundary.
    const size_t mapping_bytes = size_bytes + kHugePageBytes;
    void* mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        ThrowOutOfMemory(size_bytes, stats_.reserved_bytes);
    }
    char* start = reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(mapping), kHugePageBytes));
    // Without huge pages in the kernel the memory still works.
    PLOG_IF(WARNING, madvise(start, size_bytes, MADV_HUGEPAGE) != 0) << "no huge pages";
    segments_.push_back({.mapping = mapping, .mapping_bytes = mapping_bytes});
    blocks_[start] = {.size_bytes = size_bytes, .is_free = true, .starts_segment = true};
    free_blocks_.insert({size_bytes, start});
    stats_.reserved_bytes += static_cast<int64_t>(size_bytes);
    ++stats_.num_system_requests;
}

void* CachingCpuAllocator::Allocate(size_t size_bytes) {
    if (size_bytes == 0) {
        return nullptr;
    }
    const std::lock_guard lock(mutex_);
    // No machine has as much; and beyond, rounding up would overflow.
    if (size_bytes > SIZE_MAX / 2) {
        ThrowOutOfMemory(size_bytes, stats_.reserved_bytes);
    }
    const size_t rounded = RoundUp(size_bytes, kAlignment);
    auto fit = free_blocks_.lower_bound({rounded, nullptr});
    if (fit == free_blocks_.end()) {
        AddSegment(std::max(RoundUp(rounded, kHugePageBytes), kMinSegmentBytes));
        fit = free_blocks_.lower_bound({rounded, nullptr});
    }
    const auto [block_bytes, data] = *fit;
    free_blocks_.erase(fit);
    Block& block = blocks_.at(data);
    block.is_free = false;
    if (block_bytes > rounded) {
        block.size_bytes = rounded;
        blocks_[data + rounded] = {.size_bytes = block_bytes - rounded, .is_free = true, .starts_segment = false};
        free_blocks_.insert({block_bytes - rounded, data + rounded});
    }
    stats_.live_bytes += static_cast<int64_t>(rounded);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    return data;
}

CachingCpuAllocator::BlockMap::iterator CachingCpuAllocator::FindTaken(void* data) {
    const auto block = blocks_.find(static_cast<char*>(data));
    CHECK(block != blocks_.end() && !block->second.is_free) << "given back what this allocator did not hand out";
    return block;
}

void CachingCpuAllocator::Free(void* data) {
    if (data == nullptr) {
        return;
    }
    const std::lock_guard lock(mutex_);
    auto block = FindTaken(data);
    if (!std::exchange(block->second.counts_elsewhere, false)) {
        stats_.live_bytes -= static_cast<int64_t>(block->second.size_bytes);
    }
    block->second.is_free = true;
    const auto next = std::next(block);
    if (next != blocks_.end() && next->second.is_free && !next->second.starts_segment) {
        free_blocks_.erase({next->second.size_bytes, next->first});
        block->second.size_bytes += next->second.size_bytes;
        blocks_.erase(next);
    }
    if (!block->second.starts_segment) {
        const auto previous = std::prev(block);
        if (previous->second.is_free) {
            free_blocks_.erase({previous->second.size_bytes, previous->first});
            previous->second.size_bytes += block->second.size_bytes;
            blocks_.erase(block);
            block = previous;
        }
    }
    free_blocks_.insert({block->second.size_bytes, block->first});
}

Allocator::Stats CachingCpuAllocator::stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
}

int64_t CachingCpuAllocator::StopCounting(void* data) {
    if (data == nullptr) {
        return 0;
    }
    const std::lock_guard lock(mutex_);
    Block& block = FindTaken(data)->second;
    CHECK(!std::exchange(block.counts_elsewhere, true)) << "a block that was handed over already";
    const int64_t size_bytes = static_cast<int64_t>(block.size_bytes);
    stats_.live_bytes -= size_bytes;
    return size_bytes;
}

void CachingCpuAllocator::CountHandedOver(int64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    stats_.live_bytes += size_bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
}

void CachingCpuAllocator::ResetPeak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
}

}  // namespace infini_train
