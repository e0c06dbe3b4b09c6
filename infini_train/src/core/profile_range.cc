#include "infini_train/include/core/profile_range.h"

#include "infini_train/src/core/cuda_backend.h"

namespace infini_train {

ProfileRange::ProfileRange(const std::string& name) {
    if (cuda_backend.begin_range != nullptr) {
        cuda_backend.begin_range(name);
    }
}

ProfileRange::~ProfileRange() {
    if (cuda_backend.end_range != nullptr) {
        cuda_backend.end_range();
    }
}

}  // namespace infini_train
