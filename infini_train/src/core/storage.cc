#include "infini_train/include/core/storage.h"

#include <utility>

#include "glog/logging.h"

namespace infini_train {

Storage::Storage(std::shared_ptr<Allocator> allocator, size_t size_bytes)
    : allocator_(std::move(allocator)), size_bytes_(size_bytes) {
    CHECK_NOTNULL(allocator_.get());
    data_ = allocator_->Allocate(size_bytes);
}

Storage::~Storage() {
    allocator_->Free(data_);
}

}  // namespace infini_train
