#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// One parameter of an optimizer's pass.
struct OptimizerParameter {
    Tensor* master = nullptr;      // float32, updated
    Tensor* value = nullptr;       // bfloat16 copy of master to refresh; null for a parameter kept in float32
    const Tensor* grad = nullptr;  // float32, shape of master
    Tensor* moment1 = nullptr;     // float32, shape of master: AdamW's m, SGD's momentum (null without momentum)
    Tensor* moment2 = nullptr;     // float32, shape of master: AdamW's v (null for SGD)
    float weight_decay = 0.0f;
};

/// With g = grad * grad_scale, t = step (from 1), all in float32 in one pass over all parameters:
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   master = master - lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * master)
/// (Loshchilov and Hutter, arXiv:1711.05101.) grad_scale [1] float32, on the device of the parameters. When grad_scale
/// is not finite nothing is changed.
struct AdamWOptions {
    float lr = 0.0f;
    float beta1 = 0.9f;
    float beta2 = 0.95f;
    float eps = 1e-8f;
    int64_t step = 1;
};
using AdamWStepSig = void(std::span<const OptimizerParameter> parameters, const Tensor& grad_scale,
                          const AdamWOptions& options);
inline constinit KernelSlot<AdamWStepSig> adamw_step{"adamw_step"};

/// With g = grad * grad_scale + weight_decay * master:
///   momentum = 0:  master = master - lr g
///   otherwise:     m = momentum m + g;  master = master - lr m      (m starts at 0)
/// When grad_scale is not finite nothing is changed.
struct SgdOptions {
    float lr = 0.0f;
    float momentum = 0.0f;
};
using SgdStepSig = void(std::span<const OptimizerParameter> parameters, const Tensor& grad_scale,
                        const SgdOptions& options);
inline constinit KernelSlot<SgdStepSig> sgd_step{"sgd_step"};

/// What every device checks of a step's operands. CHECKs.
void CheckOptimizerStep(const char* operation, std::span<const OptimizerParameter> parameters, const Tensor& grad_scale,
                        bool has_moment1, bool has_moment2);

namespace cpu {
AdamWStepSig AdamWStep;
SgdStepSig SgdStep;
}  // namespace cpu
namespace cuda {
AdamWStepSig AdamWStep;
SgdStepSig SgdStep;
}  // namespace cuda
namespace meta {
AdamWStepSig AdamWStep;
SgdStepSig SgdStep;
}  // namespace meta

}  // namespace infini_train::kernels
