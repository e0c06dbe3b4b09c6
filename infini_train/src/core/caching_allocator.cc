#include "infini_train/include/core/caching_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "glog/logging.h"

namespace infini_train {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kMinCpuSegmentBytes = size_t{32} << 20;  // many small tensors share a segment

size_t RoundUp(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

CachingAllocator::CachingAllocator(std::string where, size_t granule_bytes, size_t min_segment_bytes)
    : where_(std::move(where)), granule_bytes_(granule_bytes), min_segment_bytes_(min_segment_bytes) {}

void CachingAllocator::ReturnAllSegments() {
    LOG_IF(ERROR, stats_.live_bytes != 0) << "allocator ends with " << stats_.live_bytes << " bytes still in use";
    for (const auto& [segment, size_bytes] : segments_) {
        ReturnSegment(segment, size_bytes);
    }
    segments_.clear();
}

void CachingAllocator::AddSegment(size_t size_bytes) {
    const auto out_of_memory = [&] {
        return OutOfMemory(
            where_, {.wanted_bytes = size_bytes, .free_bytes = FreeBytes(), .reserved_bytes = stats_.reserved_bytes});
    };
    // No machine has as much; and beyond, rounding up would overflow.
    if (size_bytes > SIZE_MAX / 2) {
        throw out_of_memory();
    }
    const size_t segment_bytes = std::max(RoundUp(size_bytes, granule_bytes_), min_segment_bytes_);
    ++stats_.num_system_requests;
    void* segment = TakeSegment(segment_bytes);
    if (segment == nullptr && ReturnFreeSegments()) {
        segment = TakeSegment(segment_bytes);
    }
    if (segment == nullptr) {
        throw out_of_memory();
    }
    char* const start = static_cast<char*>(segment);
    segments_[segment] = segment_bytes;
    blocks_[start] = {.size_bytes = segment_bytes, .is_free = true, .starts_segment = true};
    free_blocks_.insert({segment_bytes, start});
    stats_.reserved_bytes += static_cast<int64_t>(segment_bytes);
}

bool CachingAllocator::ReturnFreeSegments() {
    const size_t num_before = segments_.size();
    for (auto segment = segments_.begin(); segment != segments_.end();) {
        const auto block = blocks_.find(static_cast<char*>(segment->first));
        if (!block->second.is_free || block->second.size_bytes != segment->second) {
            ++segment;
            continue;
        }
        stats_.reserved_bytes -= static_cast<int64_t>(segment->second);
        free_blocks_.erase({block->second.size_bytes, block->first});
        blocks_.erase(block);
        ReturnSegment(segment->first, segment->second);
        segment = segments_.erase(segment);
    }
    return segments_.size() < num_before;
}

void* CachingAllocator::Allocate(size_t size_bytes) {
    if (size_bytes == 0) {
        return nullptr;
    }
    const std::lock_guard lock(mutex_);
    const size_t rounded = size_bytes > SIZE_MAX / 2 ? size_bytes : RoundUp(size_bytes, kAlignment);
    auto fit = free_blocks_.lower_bound({rounded, nullptr});
    if (fit == free_blocks_.end()) {
        AddSegment(rounded);
        fit = free_blocks_.lower_bound({rounded, nullptr});
    }
    const auto [block_bytes, data] = *fit;
    free_blocks_.erase(fit);
    Block& block = blocks_.at(data);
    block.is_free = false;
    // What is split off keeps the events, too: whoever takes it waits for them.
    std::erase_if(block.last_uses, [](const auto& event) { return event->IsDone(); });
    for (const std::shared_ptr<const Event>& event : block.last_uses) {
        stream()->WaitFor(*event);
    }
    if (block_bytes > rounded) {
        block.size_bytes = rounded;
        blocks_[data + rounded] = {.size_bytes = block_bytes - rounded, .is_free = true, .last_uses = block.last_uses};
        free_blocks_.insert({block_bytes - rounded, data + rounded});
    }
    block.last_uses.clear();
    stats_.live_bytes += static_cast<int64_t>(rounded);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    return data;
}

CachingAllocator::BlockMap::iterator CachingAllocator::FindTaken(void* data) {
    const auto block = blocks_.find(static_cast<char*>(data));
    CHECK(block != blocks_.end() && !block->second.is_free) << "given back what this allocator did not hand out";
    return block;
}

void CachingAllocator::Join(BlockMap::iterator first, BlockMap::iterator second) {
    first->second.size_bytes += second->second.size_bytes;
    EventList& uses = first->second.last_uses;
    uses.insert(uses.end(), second->second.last_uses.begin(), second->second.last_uses.end());
    blocks_.erase(second);
}

void CachingAllocator::Free(void* data, EventList last_uses) {
    if (data == nullptr) {
        return;
    }
    const std::lock_guard lock(mutex_);
    auto block = FindTaken(data);
    if (!std::exchange(block->second.counts_elsewhere, false)) {
        stats_.live_bytes -= static_cast<int64_t>(block->second.size_bytes);
    }
    block->second.last_uses = std::move(last_uses);
    Release(block);
}

void CachingAllocator::Release(BlockMap::iterator block) {
    block->second.is_free = true;
    const auto next = std::next(block);
    if (next != blocks_.end() && next->second.is_free && !next->second.starts_segment) {
        free_blocks_.erase({next->second.size_bytes, next->first});
        Join(block, next);
    }
    if (!block->second.starts_segment) {
        const auto previous = std::prev(block);
        if (previous->second.is_free) {
            free_blocks_.erase({previous->second.size_bytes, previous->first});
            Join(previous, block);
            block = previous;
        }
    }
    std::erase_if(block->second.last_uses, [](const auto& event) { return event->IsDone(); });
    free_blocks_.insert({block->second.size_bytes, block->first});
}

Allocator::Stats CachingAllocator::stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
}

int64_t CachingAllocator::StopCounting(void* data) {
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

void CachingAllocator::CountHandedOver(int64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    stats_.live_bytes += size_bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
}

WithheldBlocks CachingAllocator::WithholdFreeBlocks() {
    const std::lock_guard lock(mutex_);
    WithheldBlocks blocks;
    for (const auto& [size_bytes, data] : free_blocks_) {
        blocks_.at(data).is_free = false;
        blocks.push_back(data);
    }
    free_blocks_.clear();
    return blocks;
}

void CachingAllocator::ReturnWithheld(const WithheldBlocks& blocks) {
    const std::lock_guard lock(mutex_);
    for (void* data : blocks) {
        Release(FindTaken(data));
    }
}

void CachingAllocator::ResetPeak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
}

CachingCpuAllocator::CachingCpuAllocator() : CachingAllocator("host memory", kHugePageBytes, kMinCpuSegmentBytes) {}

CachingCpuAllocator::~CachingCpuAllocator() {
    ReturnAllSegments();
}

void* CachingCpuAllocator::TakeSegment(size_t size_bytes) {
    // mmap aligns to 4 KiB: map one huge page more and start at the first boundary.
    const size_t mapping_bytes = size_bytes + kHugePageBytes;
    void* mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        return nullptr;
    }
    void* start = reinterpret_cast<void*>(RoundUp(reinterpret_cast<uintptr_t>(mapping), kHugePageBytes));
    // Without huge pages in the kernel the memory still works.
    PLOG_IF(WARNING, madvise(start, size_bytes, MADV_HUGEPAGE) != 0) << "no huge pages";
    mappings_[start] = {mapping, mapping_bytes};
    return start;
}

void CachingCpuAllocator::ReturnSegment(void* segment, size_t /*size_bytes*/) {
    const auto mapping = mappings_.find(segment);
    munmap(mapping->second.first, mapping->second.second);
    mappings_.erase(mapping);
}

}  // namespace infini_train
