#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/core/tensor.h"
#include "test/support/random_tensor.h"

/// In a test: what needs GPUs ends here on a machine with fewer.
#define INFINI_SKIP_WITHOUT_GPUS(count)                                                           \
    if (const int infini_num_gpus = ::infini_train::test::NumGpus(); infini_num_gpus < (count)) { \
        GTEST_SKIP() << "needs " << (count) << " GPUs, has " << infini_num_gpus;                  \
    }
#define INFINI_SKIP_WITHOUT_CUDA() INFINI_SKIP_WITHOUT_GPUS(1)

namespace infini_train::test {

/// The GPUs that this test may use: those that CTest gave it, where it gives them out (--resource-spec-file), else all.
int NumGpus();

/// The same values on another device.
inline std::shared_ptr<Tensor> CopyTo(const Tensor& x, const Device& device) {
    const auto copy = Tensor::Empty(x.shape(), x.dtype(), device);
    copy->CopyFrom(x);
    return copy;
}

/// |got - wanted| <= absolute + relative |wanted| for every element of two float tensors, on whatever devices.
inline void ExpectClose(const Tensor& got, const Tensor& wanted, double relative, double absolute) {
    ASSERT_EQ(got.shape(), wanted.shape());
    ASSERT_EQ(got.dtype(), wanted.dtype());
    const std::vector<double> a = ToDoubles(got);
    const std::vector<double> b = ToDoubles(wanted);
    size_t num_wrong = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        // Not >, so that a NaN is wrong.
        if (!(std::abs(a[i] - b[i]) <= absolute + relative * std::abs(b[i])) && num_wrong++ < 5) {
            ADD_FAILURE() << "element " << i << " of " << a.size() << ": " << a[i] << ", wanted " << b[i];
        }
    }
    EXPECT_EQ(num_wrong, 0u) << "of " << a.size();
}

/// The bytes of two tensors, on whatever devices.
inline bool SameBytes(const Tensor& a, const Tensor& b) {
    if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
        return false;
    }
    std::vector<char> left(a.size_bytes());
    std::vector<char> right(b.size_bytes());
    CopyToHost(a, left.data());
    CopyToHost(b, right.data());
    return left == right;
}

}  // namespace infini_train::test
