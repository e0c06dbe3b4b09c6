#include "infini_train/include/core/storage.h"

#include <utility>

#include "glog/logging.h"

namespace infini_train {

Storage::Storage(std::shared_ptr<Allocator> allocator, size_t size_bytes)
    : allocator_(std::move(allocator)), size_bytes_(size_bytes) {
    CHECK_NOTNULL(allocator_.get());
    data_ = allocator_->Allocate(size_bytes);
}

void Storage::CountOn(const std::shared_ptr<Allocator>& allocator) {
    CHECK_NOTNULL(allocator.get());
    const std::lock_guard lock(mutex_);
    if (allocator == (counts_on_ == nullptr ? allocator_ : counts_on_)) {
        return;
    }
    if (counts_on_ == nullptr) {
        handed_over_bytes_ = allocator_->StopCounting(data_);
    } else {
        counts_on_->CountHandedOver(-handed_over_bytes_);
    }
    allocator->CountHandedOver(handed_over_bytes_);
    counts_on_ = allocator;
}

void Storage::UsedUntil(std::shared_ptr<const Event> event) {
    const std::lock_guard lock(mutex_);
    last_uses_.push_back(std::move(event));
}

Storage::~Storage() {
    if (counts_on_ != nullptr) {
        counts_on_->CountHandedOver(-handed_over_bytes_);
        if (counts_on_->stream() != nullptr && data_ != nullptr) {
            last_uses_.push_back(counts_on_->stream()->Record());
        }
    }
    allocator_->Free(data_, std::move(last_uses_));
}

}  // namespace infini_train
