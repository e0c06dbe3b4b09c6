#include "infini_train/include/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kBlock = 1024;              // columns summed in float32 before the sum goes on in double
constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves

struct CrossEntropySizes {
    int64_t num_rows;      // N
    int64_t vocab_size;    // columns that take part
    int64_t padded_width;  // Vp: elements between two rows
};

CrossEntropySizes CheckedSizes(const char* operation, const Tensor& logits, const Tensor& targets,
                               const CrossEntropyOptions& options) {
    CHECK_GE(logits.num_dims(), 1) << operation << ": logits " << ToString(logits.shape());
    Shape rows = logits.shape();
    rows.pop_back();
    CHECK(targets.shape() == rows) << operation << ": targets " << ToString(targets.shape()) << " for logits "
                                   << ToString(logits.shape());
    CHECK(0 < options.vocab_size && options.vocab_size <= logits.dim(-1))
        << operation << ": vocab_size " << options.vocab_size << " of logits " << ToString(logits.shape());
    const int32_t* const target = targets.data<int32_t>();
    for (int64_t n = 0; n < targets.num_elements(); ++n) {
        CHECK(target[n] == options.ignore_index || (0 <= target[n] && target[n] < options.vocab_size))
            << operation << ": target " << target[n] << " at row " << n << ", vocab_size " << options.vocab_size;
    }
    return {.num_rows = logits.num_rows(), .vocab_size = options.vocab_size, .padded_width = logits.dim(-1)};
}

/// log sum_v exp(x[v]). A NaN that the maximum misses comes back through the sum.
template <typename T>
double LogSumExp(const T* x, int64_t count) {
    float maximum = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : maximum)
    for (int64_t v = 0; v < count; ++v) {
        maximum = std::max(maximum, static_cast<float>(x[v]));
    }
    double sum = 0.0;
    for (int64_t begin = 0; begin < count; begin += kBlock) {
        const int64_t end = std::min(begin + kBlock, count);
        float block_sum = 0.0f;
#pragma omp simd reduction(+ : block_sum)
        for (int64_t v = begin; v < end; ++v) {
            block_sum += Exp(static_cast<float>(x[v]) - maximum);
        }
        sum += static_cast<double>(block_sum);
    }
    return static_cast<double>(maximum) + std::log(sum);
}

template <typename T>
void Backward(float dloss_sum, const T* logits, const int32_t* targets, const float* lse, int32_t ignore_index,
              const CrossEntropySizes& sizes, T* dlogits) {
#pragma omp parallel for if (sizes.num_rows * sizes.padded_width > kSerialElements)
    for (int64_t n = 0; n < sizes.num_rows; ++n) {
        const T* const x = logits + n * sizes.padded_width;
        T* const dx = dlogits + n * sizes.padded_width;
        if (targets[n] == ignore_index) {
            std::fill(dx, dx + sizes.padded_width, T{});
            continue;
        }
        const float row_lse = lse[n];
        // Read first: dx may be x.
        const float target_probability = Exp(static_cast<float>(x[targets[n]]) - row_lse);
#pragma omp simd
        for (int64_t v = 0; v < sizes.vocab_size; ++v) {
            Store(dloss_sum * Exp(static_cast<float>(x[v]) - row_lse), dx[v]);
        }
        Store(dloss_sum * (target_probability - 1.0f), dx[targets[n]]);
        std::fill(dx + sizes.vocab_size, dx + sizes.padded_width, T{});
    }
}

}  // namespace

CrossEntropyOutput CrossEntropyForward(const Tensor& logits, const Tensor& targets,
                                       const CrossEntropyOptions& options) {
    const CrossEntropySizes sizes = CheckedSizes("cross_entropy_forward", logits, targets, options);
    CrossEntropyOutput output{.loss_sum = Tensor::Empty({1}, DataType::kFloat32, logits.device()),
                              .num_valid = Tensor::Empty({1}, DataType::kInt64, logits.device()),
                              .lse = Tensor::Empty({sizes.num_rows}, DataType::kFloat32, logits.device())};
    const int32_t* const target = targets.data<int32_t>();
    float* const lse = output.lse->data<float>();
    std::vector<double> losses(static_cast<size_t>(sizes.num_rows));
    DispatchFloat(logits.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* const data = logits.data<T>();
#pragma omp parallel for if (sizes.num_rows * sizes.vocab_size > kSerialElements)
        for (int64_t n = 0; n < sizes.num_rows; ++n) {
            if (target[n] == options.ignore_index) {
                lse[n] = 0.0f;
                continue;
            }
            const T* const x = data + n * sizes.padded_width;
            const double row_lse = LogSumExp(x, sizes.vocab_size);
            lse[n] = static_cast<float>(row_lse);
            losses[static_cast<size_t>(n)] = row_lse - static_cast<double>(static_cast<float>(x[target[n]]));
        }
    });
    double loss_sum = 0.0;
    int64_t num_valid = 0;
    for (int64_t n = 0; n < sizes.num_rows; ++n) {
        loss_sum += losses[static_cast<size_t>(n)];
        num_valid += target[n] == options.ignore_index ? 0 : 1;
    }
    *output.loss_sum->data<float>() = static_cast<float>(loss_sum);
    *output.num_valid->data<int64_t>() = num_valid;
    return output;
}

void CrossEntropyBackward(const Tensor& dloss_sum, const Tensor& logits, const Tensor& targets, const Tensor& lse,
                          const CrossEntropyOptions& options, Tensor& dlogits) {
    const CrossEntropySizes sizes = CheckedSizes("cross_entropy_backward", logits, targets, options);
    CHECK_EQ(dloss_sum.num_elements(), 1) << "cross_entropy_backward: dloss_sum " << ToString(dloss_sum.shape());
    CHECK_EQ(lse.num_elements(), sizes.num_rows) << "cross_entropy_backward: lse " << ToString(lse.shape());
    CHECK(dlogits.shape() == logits.shape() && dlogits.dtype() == logits.dtype())
        << "cross_entropy_backward: dlogits " << ToString(dlogits.shape()) << " " << Name(dlogits.dtype())
        << ", logits " << ToString(logits.shape()) << " " << Name(logits.dtype());
    DispatchFloat(logits.dtype(), [&](auto zero) {
        using T = decltype(zero);
        Backward(*dloss_sum.data<float>(), logits.data<T>(), targets.data<int32_t>(), lse.data<float>(),
                 options.ignore_index, sizes, dlogits.data<T>());
    });
}

}  // namespace infini_train::kernels::cpu
