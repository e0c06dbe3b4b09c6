#include "infini_train/include/kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "infini_train/src/kernels/cuda/block_search.cuh"
#include "infini_train/src/kernels/cuda/launch.cuh"

// Bound by memory: AdamW on a parameter kept in bfloat16 reads 16 bytes an element and writes 14. The products that are
// fused with a sum are written out, so that the compiler chooses none: the CPU kernel fuses the same ones.

namespace infini_train::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = Pack<float>::kSize;
// 4 packs a thread. A block's time is small beside the whole, which keeps the last blocks from running alone for long.
constexpr int64_t kChunk = int64_t{kThreads} * kPack * 4;
constexpr int kMaxParameters = 512;  // of a launch

/// What a parameter does not have is null.
struct ParameterEntry {
    float* master;
    __nv_bfloat16* value;
    const float* grad;
    float* moment1;
    float* moment2;
    int64_t count;
    float weight_decay;
    bool is_aligned;  // for the accesses of whole packs
};

struct ParameterTable {
    int num_parameters;
    int first_block[kMaxParameters + 1];
    ParameterEntry entries[kMaxParameters];
};

struct AdamWRule {
    static constexpr bool kHasMoment1 = true;
    static constexpr bool kHasMoment2 = true;

    float lr;
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float correction1;  // 1 / (1 - beta1^t)
    float correction2;  // 1 / (1 - beta2^t)
    float eps;

    __device__ void operator()(float& master, float grad, float& moment1, float& moment2, float scale,
                               float weight_decay) const {
        const float g = __fmul_rn(grad, scale);
        moment1 = __fmaf_rn(beta1, moment1, __fmul_rn(one_minus_beta1, g));
        moment2 = __fmaf_rn(beta2, moment2, __fmul_rn(one_minus_beta2, __fmul_rn(g, g)));
        const float divisor = __fadd_rn(__fsqrt_rn(__fmul_rn(moment2, correction2)), eps);
        const float direction = __fdiv_rn(__fmul_rn(moment1, correction1), divisor);
        master = __fmaf_rn(-lr, __fmaf_rn(weight_decay, master, direction), master);
    }
};

struct SgdRule {
    static constexpr bool kHasMoment1 = false;
    static constexpr bool kHasMoment2 = false;

    float lr;

    __device__ void operator()(float& master, float grad, float& /*moment1*/, float& /*moment2*/, float scale,
                               float weight_decay) const {
        master = __fmaf_rn(-lr, __fmaf_rn(grad, scale, __fmul_rn(weight_decay, master)), master);
    }
};

struct SgdMomentumRule {
    static constexpr bool kHasMoment1 = true;
    static constexpr bool kHasMoment2 = false;

    float lr;
    float momentum;

    __device__ void operator()(float& master, float grad, float& moment1, float& /*moment2*/, float scale,
                               float weight_decay) const {
        moment1 = __fmaf_rn(momentum, moment1, __fmaf_rn(grad, scale, __fmul_rn(weight_decay, master)));
        master = __fmaf_rn(-lr, moment1, master);
    }
};

template <typename Rule>
__device__ void UpdatePack(const ParameterEntry& entry, int64_t begin, float scale, const Rule& rule) {
    Pack<float> master = LoadPack(entry.master + begin);
    const Pack<float> grad = LoadPack(entry.grad + begin);
    Pack<float> moment1 = {};
    Pack<float> moment2 = {};
    if constexpr (Rule::kHasMoment1) {
        moment1 = LoadPack(entry.moment1 + begin);
    }
    if constexpr (Rule::kHasMoment2) {
        moment2 = LoadPack(entry.moment2 + begin);
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
        rule(master.values[k], grad.values[k], moment1.values[k], moment2.values[k], scale, entry.weight_decay);
    }
    StorePack(entry.master + begin, master);
    if constexpr (Rule::kHasMoment1) {
        StorePack(entry.moment1 + begin, moment1);
    }
    if constexpr (Rule::kHasMoment2) {
        StorePack(entry.moment2 + begin, moment2);
    }
    if (entry.value != nullptr) {
        struct alignas(8) HalfPack {
            __nv_bfloat16 values[kPack];
        } value;
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
            value.values[k] = FromFloat<__nv_bfloat16>(master.values[k]);
        }
        *reinterpret_cast<HalfPack*>(entry.value + begin) = value;
    }
}

template <typename Rule>
__device__ void UpdateElement(const ParameterEntry& entry, int64_t i, float scale, const Rule& rule) {
    float master = entry.master[i];
    float moment1 = Rule::kHasMoment1 ? entry.moment1[i] : 0.0f;
    float moment2 = Rule::kHasMoment2 ? entry.moment2[i] : 0.0f;
    rule(master, entry.grad[i], moment1, moment2, scale, entry.weight_decay);
    entry.master[i] = master;
    if constexpr (Rule::kHasMoment1) {
        entry.moment1[i] = moment1;
    }
    if constexpr (Rule::kHasMoment2) {
        entry.moment2[i] = moment2;
    }
    if (entry.value != nullptr) {
        entry.value[i] = FromFloat<__nv_bfloat16>(master);
    }
}

template <typename Rule>
__global__ void __launch_bounds__(kThreads)
    StepKernel(const __grid_constant__ ParameterTable table, const float* __restrict__ grad_scale, const Rule rule) {
    const float scale = *grad_scale;
    if (!isfinite(scale)) {
        return;
    }
    const int block = static_cast<int>(blockIdx.x);
    const int index = OwnerOfBlock(table.first_block, table.num_parameters, block);
    const ParameterEntry entry = table.entries[index];
    const int64_t chunk_begin = (block - table.first_block[index]) * kChunk;
    const int64_t chunk_end = min(chunk_begin + kChunk, entry.count);
    for (int64_t begin = chunk_begin + threadIdx.x * kPack; begin < chunk_end; begin += kThreads * kPack) {
        if (entry.is_aligned && begin + kPack <= chunk_end) {
            UpdatePack(entry, begin, scale, rule);
        } else {
            const int64_t end = min(begin + kPack, chunk_end);
            for (int64_t i = begin; i < end; ++i) {
                UpdateElement(entry, i, scale, rule);
            }
        }
    }
}

float* ElementsOrNull(Tensor* tensor) {
    return tensor == nullptr ? nullptr : Elements<float>(*tensor);
}

ParameterEntry EntryOf(const OptimizerParameter& parameter) {
    ParameterEntry entry = {.master = Elements<float>(*parameter.master),
                            .value = parameter.value == nullptr ? nullptr : Elements<__nv_bfloat16>(*parameter.value),
                            .grad = Elements<float>(*parameter.grad),
                            .moment1 = ElementsOrNull(parameter.moment1),
                            .moment2 = ElementsOrNull(parameter.moment2),
                            .count = parameter.master->num_elements(),
                            .weight_decay = parameter.weight_decay,
                            .is_aligned = false};
    // A pack of the bfloat16 copy is half as long.
    entry.is_aligned = IsAligned16(entry.master, entry.grad, entry.moment1, entry.moment2) &&
                       reinterpret_cast<uintptr_t>(entry.value) % 8 == 0;
    return entry;
}

template <typename Rule>
void Launch(std::span<const OptimizerParameter> parameters, const Tensor& grad_scale, const Rule& rule) {
    static_assert(sizeof(ParameterTable) + sizeof(void*) + sizeof(Rule) <= kMaxArgumentBytes);
    for (size_t begin = 0; begin < parameters.size(); begin += kMaxParameters) {
        const size_t count = std::min(parameters.size() - begin, size_t{kMaxParameters});
        ParameterTable table;
        table.num_parameters = static_cast<int>(count);
        int num_blocks = 0;
        for (size_t i = 0; i < count; ++i) {
            table.first_block[i] = num_blocks;
            table.entries[i] = EntryOf(parameters[begin + i]);
            num_blocks += CeilDiv(table.entries[i].count, kChunk);
        }
        table.first_block[count] = num_blocks;
        if (num_blocks > 0) {
            StepKernel<<<num_blocks, kThreads, 0, LaunchStream(grad_scale.device())>>>(
                table, Elements<float>(grad_scale), rule);
            INFINI_CUDA_CHECK_LAUNCH();
        }
    }
}

}  // namespace

void AdamWStep(std::span<const OptimizerParameter> parameters, const Tensor& grad_scale, const AdamWOptions& options) {
    CheckOptimizerStep("adamw_step", parameters, grad_scale, true, true);
    CHECK_GE(options.step, 1) << "adamw_step: steps count from 1";
    // In double: 1 - beta^t loses most of float32's digits where beta^t is near 1.
    const double beta1 = options.beta1;
    const double beta2 = options.beta2;
    const auto step = static_cast<double>(options.step);
    Launch(parameters, grad_scale,
           AdamWRule{.lr = options.lr,
                     .beta1 = options.beta1,
                     .one_minus_beta1 = static_cast<float>(1.0 - beta1),
                     .beta2 = options.beta2,
                     .one_minus_beta2 = static_cast<float>(1.0 - beta2),
                     .correction1 = static_cast<float>(1.0 / (1.0 - std::pow(beta1, step))),
                     .correction2 = static_cast<float>(1.0 / (1.0 - std::pow(beta2, step))),
                     .eps = options.eps});
}

void SgdStep(std::span<const OptimizerParameter> parameters, const Tensor& grad_scale, const SgdOptions& options) {
    const bool has_momentum = options.momentum != 0.0f;
    CheckOptimizerStep("sgd_step", parameters, grad_scale, has_momentum, false);
    if (has_momentum) {
        Launch(parameters, grad_scale, SgdMomentumRule{.lr = options.lr, .momentum = options.momentum});
    } else {
        Launch(parameters, grad_scale, SgdRule{.lr = options.lr});
    }
}

}  // namespace infini_train::kernels::cuda
