#pragma once

#include <string>

namespace infini_train {

/// A named range of the calling thread's work, as profilers show it (NVTX in a build with CUDA, nothing elsewhere).
class ProfileRange {
 public:
    explicit ProfileRange(const std::string& name);
    ~ProfileRange();
    ProfileRange(const ProfileRange&) = delete;
    ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace infini_train
