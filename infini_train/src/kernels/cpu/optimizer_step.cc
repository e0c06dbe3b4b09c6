#include "infini_train/include/kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/vector_math.h"

// All parameters are cut into blocks, and the threads share the blocks of all of them in one region: a norm's gain then
// costs no more than its elements. Elements do not depend on each other, so the cut changes no bits.

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kBlock = 1 << 13;           // 32 KiB of each operand: a bfloat16 copy finds its values in the cache
constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves

/// A block of one parameter; what the parameter does not have is null.
struct Block {
    float* __restrict master;
    BFloat16* __restrict value;
    const float* __restrict grad;
    float* __restrict moment1;
    float* __restrict moment2;
    int64_t count;
    float weight_decay;
};

template <typename T>
auto* At(T* tensor, int64_t begin) {
    return tensor == nullptr ? nullptr : tensor->template data<float>() + begin;
}

Block BlockOf(const OptimizerParameter& parameter, int64_t begin) {
    return {.master = At(parameter.master, begin),
            .value = parameter.value == nullptr ? nullptr : parameter.value->data<BFloat16>() + begin,
            .grad = At(parameter.grad, begin),
            .moment1 = At(parameter.moment1, begin),
            .moment2 = At(parameter.moment2, begin),
            .count = std::min(kBlock, parameter.master->num_elements() - begin),
            .weight_decay = parameter.weight_decay};
}

template <typename Update>
void ForEachBlock(std::span<const OptimizerParameter> parameters, const Update& update) {
    std::vector<int64_t> first_block = {0};  // of each parameter, and the number of all
    int64_t num_elements = 0;
    for (const OptimizerParameter& parameter : parameters) {
        const int64_t count = parameter.master->num_elements();
        first_block.push_back(first_block.back() + (count + kBlock - 1) / kBlock);
        num_elements += count;
    }
#pragma omp parallel for schedule(static) if (num_elements > kSerialElements)
    for (int64_t block = 0; block < first_block.back(); ++block) {
        const auto after = std::upper_bound(first_block.begin(), first_block.end(), block);
        const auto index = static_cast<size_t>(after - first_block.begin()) - 1;
        update(BlockOf(parameters[index], (block - first_block[index]) * kBlock));
    }
}

/// bfloat16 copy of the updated values, which are still in the cache.
void RefreshValue(const Block& block) {
    if (block.value == nullptr) {
        return;
    }
    const float* __restrict master = block.master;
    BFloat16* __restrict value = block.value;
#pragma omp simd
    for (int64_t i = 0; i < block.count; ++i) {
        Store(master[i], value[i]);
    }
}

struct AdamWFactors {
    float scale;
    float lr;
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float correction1;  // 1 / (1 - beta1^t)
    float correction2;  // 1 / (1 - beta2^t)
    float eps;
};

void AdamWBlock(const Block& block, const AdamWFactors& f) {
    float* __restrict master = block.master;
    float* __restrict moment1 = block.moment1;
    float* __restrict moment2 = block.moment2;
    const float* __restrict grad = block.grad;
    const float weight_decay = block.weight_decay;
#pragma omp simd
    for (int64_t i = 0; i < block.count; ++i) {
        const float g = grad[i] * f.scale;
        const float m = f.beta1 * moment1[i] + f.one_minus_beta1 * g;
        const float v = f.beta2 * moment2[i] + f.one_minus_beta2 * (g * g);
        const float direction = m * f.correction1 / (std::sqrt(v * f.correction2) + f.eps);
        moment1[i] = m;
        moment2[i] = v;
        master[i] -= f.lr * (direction + weight_decay * master[i]);
    }
    RefreshValue(block);
}

void SgdBlock(const Block& block, float scale, float lr) {
    float* __restrict master = block.master;
    const float* __restrict grad = block.grad;
    const float weight_decay = block.weight_decay;
#pragma omp simd
    for (int64_t i = 0; i < block.count; ++i) {
        master[i] -= lr * (grad[i] * scale + weight_decay * master[i]);
    }
    RefreshValue(block);
}

void SgdMomentumBlock(const Block& block, float scale, float lr, float momentum) {
    float* __restrict master = block.master;
    float* __restrict moment1 = block.moment1;
    const float* __restrict grad = block.grad;
    const float weight_decay = block.weight_decay;
#pragma omp simd
    for (int64_t i = 0; i < block.count; ++i) {
        const float m = momentum * moment1[i] + (grad[i] * scale + weight_decay * master[i]);
        moment1[i] = m;
        master[i] -= lr * m;
    }
    RefreshValue(block);
}

}  // namespace

void AdamWStep(std::span<const OptimizerParameter> parameters, const Tensor& grad_scale, const AdamWOptions& options) {
    CheckOptimizerStep("adamw_step", parameters, grad_scale, true, true);
    CHECK_GE(options.step, 1) << "adamw_step: steps count from 1";
    const float scale = *grad_scale.data<float>();
    if (!std::isfinite(scale)) {
        return;
    }
    // In double: 1 - beta^t loses most of float32's digits where beta^t is near 1.
    const double beta1 = options.beta1;
    const double beta2 = options.beta2;
    const auto step = static_cast<double>(options.step);
    const AdamWFactors factors = {.scale = scale,
                                  .lr = options.lr,
                                  .beta1 = options.beta1,
                                  .one_minus_beta1 = static_cast<float>(1.0 - beta1),
                                  .beta2 = options.beta2,
                                  .one_minus_beta2 = static_cast<float>(1.0 - beta2),
                                  .correction1 = static_cast<float>(1.0 / (1.0 - std::pow(beta1, step))),
                                  .correction2 = static_cast<float>(1.0 / (1.0 - std::pow(beta2, step))),
                                  .eps = options.eps};
    ForEachBlock(parameters, [&](const Block& block) { AdamWBlock(block, factors); });
}

void SgdStep(std::span<const OptimizerParameter> parameters, const Tensor& grad_scale, const SgdOptions& options) {
    const bool has_momentum = options.momentum != 0.0f;
    CheckOptimizerStep("sgd_step", parameters, grad_scale, has_momentum, false);
    const float scale = *grad_scale.data<float>();
    if (!std::isfinite(scale)) {
        return;
    }
    ForEachBlock(parameters, [&](const Block& block) {
        if (has_momentum) {
            SgdMomentumBlock(block, scale, options.lr, options.momentum);
        } else {
            SgdBlock(block, scale, options.lr);
        }
    });
}

}  // namespace infini_train::kernels::cpu
