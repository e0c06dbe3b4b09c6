#pragma once

#include <memory>
#include <string>

#include "infini_train/include/core/allocator.h"

namespace infini_train {

/// How core makes CUDA devices. Written before main by core/cuda/register.cc, never again; all null in a build without
/// CUDA.
struct CudaBackend {
    int (*num_devices)() = nullptr;
    std::string (*name)(int index) = nullptr;
    std::shared_ptr<Allocator> (*make_allocator)(int index) = nullptr;
    std::unique_ptr<Stream> (*make_stream)(int index) = nullptr;
    void (*begin_range)(const std::string& name) = nullptr;  // core/profile_range.h
    void (*end_range)() = nullptr;
};
inline constinit CudaBackend cuda_backend = {};

}  // namespace infini_train
