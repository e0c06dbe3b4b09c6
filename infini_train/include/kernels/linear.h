#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/kernel_slot.h"

namespace infini_train::kernels {

/// y[n, o] = sum_i x[n, i] * weight[o, i] + bias[o]
/// x [..., I] float32 or bfloat16; weight [O, I] and bias [O], dtype of x; bias may be null. Sums run in float32.
/// Returns y [..., O], dtype of x.
using LinearForwardSig = std::shared_ptr<Tensor>(const Tensor& x, const Tensor& weight, const Tensor* bias);
inline constinit KernelSlot<LinearForwardSig> linear_forward{"linear_forward"};

/// dx[n, i] = sum_o dy[n, o] * weight[o, i]
/// dy [..., O], dtype of weight [O, I]. Returns dx [..., I], dtype of dy.
using LinearBackwardInputSig = std::shared_ptr<Tensor>(const Tensor& dy, const Tensor& weight);
inline constinit KernelSlot<LinearBackwardInputSig> linear_backward_input{"linear_backward_input"};

/// dweight[o, i] = (accumulate ? dweight[o, i] : 0) + sum_n dy[n, o] * x[n, i]
/// dy [..., O], x [..., I] of one dtype; dweight [O, I] float32.
using LinearBackwardWeightSig = void(const Tensor& dy, const Tensor& x, Tensor& dweight, bool accumulate);
inline constinit KernelSlot<LinearBackwardWeightSig> linear_backward_weight{"linear_backward_weight"};

/// dbias[o] = (accumulate ? dbias[o] : 0) + sum_n dy[n, o]
/// dy [..., O] float32 or bfloat16; dbias [O] float32. The sum has the same order whatever the number of threads.
using LinearBackwardBiasSig = void(const Tensor& dy, Tensor& dbias, bool accumulate);
inline constinit KernelSlot<LinearBackwardBiasSig> linear_backward_bias{"linear_backward_bias"};

/// pre[n, o] = sum_i x[n, i] * weight[o, i] + bias[o];  y = gelu(pre), the tanh form of gelu.h
/// As linear_forward, with both results, each rounded to the dtype of x once: y from the float32 sums or from pre.
struct LinearGeluOutput {
    std::shared_ptr<Tensor> pre;  // [..., O], dtype of x; saved for the backward
    std::shared_ptr<Tensor> y;    // [..., O], dtype of x
};
using LinearGeluForwardSig = LinearGeluOutput(const Tensor& x, const Tensor& weight, const Tensor* bias);
inline constinit KernelSlot<LinearGeluForwardSig> linear_gelu_forward{"linear_gelu_forward"};

/// dpre[n, i] = gelu'(pre[n, i]) * sum_o dy[n, o] * weight[o, i]: what a linear layer sends back through the gelu whose
/// result it reads. dy [..., O], dtype of weight [O, I] and of pre [..., I]. Returns dpre [..., I] of that dtype.
using LinearBackwardInputGeluSig = std::shared_ptr<Tensor>(const Tensor& dy, const Tensor& weight, const Tensor& pre);
inline constinit KernelSlot<LinearBackwardInputGeluSig> linear_backward_input_gelu{"linear_backward_input_gelu"};

namespace cpu {
LinearForwardSig LinearForward;
LinearBackwardInputSig LinearBackwardInput;
LinearBackwardWeightSig LinearBackwardWeight;
LinearBackwardBiasSig LinearBackwardBias;
LinearGeluForwardSig LinearGeluForward;
LinearBackwardInputGeluSig LinearBackwardInputGelu;
}  // namespace cpu
namespace cuda {
LinearForwardSig LinearForward;
LinearBackwardInputSig LinearBackwardInput;
LinearBackwardWeightSig LinearBackwardWeight;
LinearBackwardBiasSig LinearBackwardBias;
LinearGeluForwardSig LinearGeluForward;
LinearBackwardInputGeluSig LinearBackwardInputGelu;
}  // namespace cuda
namespace meta {
LinearForwardSig LinearForward;
LinearBackwardInputSig LinearBackwardInput;
LinearBackwardWeightSig LinearBackwardWeight;
LinearBackwardBiasSig LinearBackwardBias;
LinearGeluForwardSig LinearGeluForward;
LinearBackwardInputGeluSig LinearBackwardInputGelu;
}  // namespace meta

}  // namespace infini_train::kernels
