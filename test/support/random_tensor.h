#pragma once

#include <omp.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "infini_train/include/core/random.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::test {

/// Uniform in [-scale, scale), rounded to a float dtype.
inline std::shared_ptr<Tensor> RandomTensor(const Shape& shape, DataType dtype, const Device& device, uint64_t seed,
                                            float scale = 1.0f) {
    std::vector<float> values(static_cast<size_t>(NumElements(shape)));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = scale * (2.0f * Uniform({.seed = seed, .stream = 0}, i) - 1.0f);
    }
    if (dtype == DataType::kBFloat16) {
        return Tensor::FromVector(std::vector<BFloat16>(values.begin(), values.end()), shape, device);
    }
    return Tensor::FromVector(values, shape, device);
}

/// The values of a float tensor.
inline std::vector<double> ToDoubles(const Tensor& tensor) {
    std::vector<double> values;
    if (tensor.dtype() == DataType::kBFloat16) {
        for (const BFloat16 value : tensor.ToVector<BFloat16>()) {
            values.push_back(static_cast<float>(value));
        }
    } else {
        for (const float value : tensor.ToVector<float>()) {
            values.push_back(value);
        }
    }
    return values;
}

inline bool SameBits(const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && a.dtype() == b.dtype() &&
           (a.num_elements() == 0 || std::memcmp(a.raw_data(), b.raw_data(), a.size_bytes()) == 0);
}

/// As many OpenMP threads while it lives.
class NumThreadsGuard {
 public:
    explicit NumThreadsGuard(int num_threads) : before_(omp_get_max_threads()) { omp_set_num_threads(num_threads); }
    ~NumThreadsGuard() { omp_set_num_threads(before_); }
    NumThreadsGuard(const NumThreadsGuard&) = delete;
    NumThreadsGuard& operator=(const NumThreadsGuard&) = delete;

 private:
    int before_;
};

}  // namespace infini_train::test
