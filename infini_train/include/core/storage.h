#pragma once

#include <cstddef>
#include <memory>

#include "infini_train/include/core/allocator.h"

namespace infini_train {

/// A block of an allocator, given back at the end. Tensors and their views share one.
class Storage {
 public:
    Storage(std::shared_ptr<Allocator> allocator, size_t size_bytes);
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;
    ~Storage();

    void* data() const { return data_; }
    size_t size_bytes() const { return size_bytes_; }

 private:
    std::shared_ptr<Allocator> allocator_;
    size_t size_bytes_;
    void* data_;
};

}  // namespace infini_train
