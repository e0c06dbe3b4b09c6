#include "infini_train/include/kernels/grad_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "glog/logging.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kBlock = int64_t{1} << 15;  // elements summed by one thread
constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves
constexpr int64_t kLanes = 32;                // partial sums of a block: four vectors of 512 bits

/// The lanes are in the source, not left to the compiler, so that the order is the same on every machine. A product of
/// two float32 is exact in double, so whether it is fused with the addition does not matter either.
double SumOfSquares(const float* x, int64_t count) {
    std::array<double, kLanes> lanes{};
    int64_t begin = 0;
    for (; begin + kLanes <= count; begin += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
            const double value = x[begin + lane];
            lanes[static_cast<size_t>(lane)] += value * value;
        }
    }
    for (int64_t lane = 0; begin + lane < count; ++lane) {
        const double value = x[begin + lane];
        lanes[static_cast<size_t>(lane)] += value * value;
    }
    double sum = 0.0;
    for (const double lane : lanes) {
        sum += lane;
    }
    return sum;
}

}  // namespace

void SquaredSums(std::span<const Tensor* const> grads, Tensor& squared_sums) {
    CheckSquaredSums(grads, squared_sums);
    std::vector<int64_t> first_block = {0};  // of each gradient, and the number of all
    int64_t num_elements = 0;
    for (const Tensor* grad : grads) {
        first_block.push_back(first_block.back() + (grad->num_elements() + kBlock - 1) / kBlock);
        num_elements += grad->num_elements();
    }
    std::vector<double> block_sums(static_cast<size_t>(first_block.back()));
#pragma omp parallel for schedule(static) if (num_elements > kSerialElements)
    for (int64_t block = 0; block < first_block.back(); ++block) {
        const auto after = std::upper_bound(first_block.begin(), first_block.end(), block);
        const auto index = static_cast<size_t>(after - first_block.begin()) - 1;
        const int64_t begin = (block - first_block[index]) * kBlock;
        const int64_t count = std::min(kBlock, grads[index]->num_elements() - begin);
        block_sums[static_cast<size_t>(block)] = SumOfSquares(grads[index]->data<float>() + begin, count);
    }
    float* sums = squared_sums.data<float>();
    for (size_t i = 0; i < grads.size(); ++i) {
        double sum = 0.0;
        for (int64_t block = first_block[i]; block < first_block[i + 1]; ++block) {
            sum += block_sums[static_cast<size_t>(block)];
        }
        sums[i] = static_cast<float>(sum);
    }
}

GradScaleOutput GradScale(const Tensor& squared_sums, const Tensor& num_valid, float max_norm) {
    CheckGradScale(squared_sums, num_valid, max_norm);
    const int64_t count = *num_valid.data<int64_t>();
    CHECK_GE(count, 0) << "grad_scale: num_valid";

    GradScaleOutput output = {.norm = Tensor::Empty({1}, DataType::kFloat32, squared_sums.device()),
                              .scale = Tensor::Empty({1}, DataType::kFloat32, squared_sums.device())};
    double norm = 0.0;
    double scale = 0.0;
    if (count > 0) {
        double sum = 0.0;
        const float* sums = squared_sums.data<float>();
        for (int64_t i = 0; i < squared_sums.num_elements(); ++i) {
            sum += sums[i];
        }
        norm = std::sqrt(sum) / static_cast<double>(count);
        const double clip = max_norm > 0.0f ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
        scale = std::isfinite(norm) ? clip / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
    }
    *output.norm->data<float>() = static_cast<float>(norm);
    *output.scale->data<float>() = static_cast<float>(scale);
    return output;
}

}  // namespace infini_train::kernels::cpu
