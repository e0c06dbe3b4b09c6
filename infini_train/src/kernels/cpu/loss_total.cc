#include "infini_train/include/kernels/loss_total.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "glog/logging.h"

namespace infini_train::kernels::cpu {

void LossTotal(std::span<const Tensor* const> sums, std::span<const Tensor* const> counts, Tensor& total) {
    CHECK_EQ(sums.size(), counts.size()) << "loss_total: sums and counts";
    CHECK(total.shape() == Shape{2} && total.dtype() == DataType::kInt64)
        << "loss_total: total " << ToString(total.shape()) << " " << Name(total.dtype()) << ", wanted [2] int64";
    double sum = 0.0;
    int64_t count = 0;
    for (size_t m = 0; m < sums.size(); ++m) {
        CHECK(sums[m]->shape() == Shape{1} && sums[m]->dtype() == DataType::kFloat32)
            << "loss_total: sum " << m << " " << ToString(sums[m]->shape()) << " " << Name(sums[m]->dtype())
            << ", wanted [1] float32";
        CHECK(counts[m]->shape() == Shape{1} && counts[m]->dtype() == DataType::kInt64)
            << "loss_total: count " << m << " " << ToString(counts[m]->shape()) << " " << Name(counts[m]->dtype())
            << ", wanted [1] int64";
        sum += static_cast<double>(*sums[m]->data<float>());
        count += *counts[m]->data<int64_t>();
    }
    total.data<int64_t>()[0] = std::bit_cast<int64_t>(sum);
    total.data<int64_t>()[1] = count;
}

LossMean MeanLoss(const Tensor& totals) {
    CHECK(totals.num_dims() == 2 && totals.dim(1) == 2 && totals.dtype() == DataType::kInt64)
        << "loss_mean: totals " << ToString(totals.shape()) << " " << Name(totals.dtype()) << ", wanted [R, 2] int64";
    const int64_t* values = totals.data<int64_t>();
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t r = 0; r < totals.dim(0); ++r) {
        sum += std::bit_cast<double>(values[2 * r]);
        count += values[2 * r + 1];
    }
    const LossMean output = {.mean = Tensor::Empty({1}, DataType::kFloat32, totals.device()),
                             .num_valid = Tensor::Empty({1}, DataType::kInt64, totals.device())};
    *output.mean->data<float>() = count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
    *output.num_valid->data<int64_t>() = count;
    return output;
}

}  // namespace infini_train::kernels::cpu
