#include "infini_train/src/comm/local/rank_order_sum.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "glog/logging.h"

namespace infini_train::comm {
namespace {

constexpr int64_t kBlockElements = 2048;  // 8 or 16 KiB: the sum stays in the first-level cache

template <typename T>
void Sum(const std::vector<Tensor*>& copies, int64_t begin, int64_t end) {
    std::vector<T*> data;
    for (Tensor* copy : copies) {
        data.push_back(copy->data<T>());
    }
    std::array<T, kBlockElements> sum;
    for (int64_t start = begin; start < end; start += kBlockElements) {
        const int64_t count = std::min(kBlockElements, end - start);
        std::copy_n(data[0] + start, count, sum.data());
        for (size_t n = 1; n < data.size(); ++n) {
            const T* x = data[n] + start;
            for (int64_t i = 0; i < count; ++i) {
                sum[static_cast<size_t>(i)] += x[i];
            }
        }
        for (T* x : data) {
            std::copy_n(sum.data(), count, x + start);
        }
    }
}

}  // namespace

bool CanSum(DataType dtype) {
    return dtype == DataType::kFloat32 || dtype == DataType::kInt64;
}

void SumInRankOrder(const std::vector<Tensor*>& copies, int64_t begin, int64_t end) {
    if (copies[0]->dtype() == DataType::kFloat32) {
        Sum<float>(copies, begin, end);
    } else {
        Sum<int64_t>(copies, begin, end);
    }
}

void AddOnStream(const Tensor& x, Tensor& sum) {
    CHECK(add_on_cuda != nullptr) << "a sum on " << ToString(sum.device());
    add_on_cuda(x, sum);
}

}  // namespace infini_train::comm
