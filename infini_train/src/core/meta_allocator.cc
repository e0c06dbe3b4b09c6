#include "infini_train/include/core/meta_allocator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"

namespace infini_train {
namespace {

// Bits 55 to 63 set: on x86-64 as on arm64 (which ignores the uppermost byte) the kernel's half, or no address at all.
constexpr uintptr_t kBegin = uintptr_t{0x1ff} << 55;
constexpr uintptr_t kEnd = UINTPTR_MAX - Allocator::kAlignment + 1;

}  // namespace

MetaAllocator::~MetaAllocator() {
    LOG_IF(ERROR, stats_.live_bytes != 0) << "allocator ends with " << stats_.live_bytes << " bytes still in use";
}

void* MetaAllocator::Allocate(size_t size_bytes) {
    if (size_bytes == 0) {
        return nullptr;
    }
    const std::lock_guard lock(mutex_);
    uintptr_t address = kBegin;
    if (!blocks_.empty()) {
        const auto& [last, block] = *blocks_.rbegin();
        address = last + static_cast<uintptr_t>(block.size_bytes);
    }
    if (size_bytes > kEnd - address) {
        throw OutOfMemory("meta memory", {.wanted_bytes = size_bytes, .reserved_bytes = stats_.live_bytes});
    }
    const auto rounded = static_cast<int64_t>((size_bytes + kAlignment - 1) / kAlignment * kAlignment);
    blocks_[address] = {.size_bytes = rounded};
    stats_.live_bytes += rounded;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    return reinterpret_cast<void*>(address);
}

MetaAllocator::BlockMap::iterator MetaAllocator::FindTaken(void* data) {
    const auto block = blocks_.find(reinterpret_cast<uintptr_t>(data));
    CHECK(block != blocks_.end()) << "given back what this allocator did not hand out";
    return block;
}

void MetaAllocator::Free(void* data, EventList /*last_uses*/) {
    if (data == nullptr) {
        return;
    }
    const std::lock_guard lock(mutex_);
    const auto block = FindTaken(data);
    if (!block->second.counts_elsewhere) {
        stats_.live_bytes -= block->second.size_bytes;
    }
    blocks_.erase(block);
}

Allocator::Stats MetaAllocator::stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
}

int64_t MetaAllocator::StopCounting(void* data) {
    if (data == nullptr) {
        return 0;
    }
    const std::lock_guard lock(mutex_);
    Block& block = FindTaken(data)->second;
    CHECK(!std::exchange(block.counts_elsewhere, true)) << "a block that was handed over already";
    stats_.live_bytes -= block.size_bytes;
    return block.size_bytes;
}

void MetaAllocator::CountHandedOver(int64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    stats_.live_bytes += size_bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
}

void MetaAllocator::ReturnWithheld(const WithheldBlocks& blocks) {
    CHECK(blocks.empty());
}

void MetaAllocator::ResetPeak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
}

}  // namespace infini_train
