#include "infini_train/include/kernels/accumulate.h"
#include "infini_train/include/kernels/add.h"
#include "infini_train/include/kernels/attention.h"
#include "infini_train/include/kernels/attention_cached.h"
#include "infini_train/include/kernels/cast.h"
#include "infini_train/include/kernels/cross_entropy.h"
#include "infini_train/include/kernels/dropout.h"
#include "infini_train/include/kernels/embedding.h"
#include "infini_train/include/kernels/fill.h"
#include "infini_train/include/kernels/gelu.h"
#include "infini_train/include/kernels/grad_norm.h"
#include "infini_train/include/kernels/layer_norm.h"
#include "infini_train/include/kernels/linear.h"
#include "infini_train/include/kernels/loss_total.h"
#include "infini_train/include/kernels/optimizer_step.h"
#include "infini_train/include/kernels/rms_norm.h"
#include "infini_train/include/kernels/rotary.h"
#include "infini_train/include/kernels/swiglu.h"

namespace infini_train::kernels {
namespace {

// Runs when the library is loaded, before main.
[[maybe_unused]] const bool registered = [] {
    accumulate.Register(DeviceType::kCPU, cpu::Accumulate);
    adamw_step.Register(DeviceType::kCPU, cpu::AdamWStep);
    add.Register(DeviceType::kCPU, cpu::Add);
    attention_backward.Register(DeviceType::kCPU, cpu::AttentionBackward);
    attention_cached.Register(DeviceType::kCPU, cpu::AttentionCached);
    attention_forward.Register(DeviceType::kCPU, cpu::AttentionForward);
    cast.Register(DeviceType::kCPU, cpu::Cast);
    cross_entropy_backward.Register(DeviceType::kCPU, cpu::CrossEntropyBackward);
    cross_entropy_forward.Register(DeviceType::kCPU, cpu::CrossEntropyForward);
    dropout.Register(DeviceType::kCPU, cpu::Dropout);
    embedding_backward.Register(DeviceType::kCPU, cpu::EmbeddingBackward);
    embedding_forward.Register(DeviceType::kCPU, cpu::EmbeddingForward);
    fill.Register(DeviceType::kCPU, cpu::Fill);
    gelu_backward.Register(DeviceType::kCPU, cpu::GeluBackward);
    gelu_forward.Register(DeviceType::kCPU, cpu::GeluForward);
    grad_scale.Register(DeviceType::kCPU, cpu::GradScale);
    layer_norm_backward.Register(DeviceType::kCPU, cpu::LayerNormBackward);
    layer_norm_forward.Register(DeviceType::kCPU, cpu::LayerNormForward);
    linear_backward_bias.Register(DeviceType::kCPU, cpu::LinearBackwardBias);
    linear_backward_input.Register(DeviceType::kCPU, cpu::LinearBackwardInput);
    linear_backward_input_gelu.Register(DeviceType::kCPU, cpu::LinearBackwardInputGelu);
    linear_backward_weight.Register(DeviceType::kCPU, cpu::LinearBackwardWeight);
    linear_forward.Register(DeviceType::kCPU, cpu::LinearForward);
    linear_gelu_forward.Register(DeviceType::kCPU, cpu::LinearGeluForward);
    loss_mean.Register(DeviceType::kCPU, cpu::MeanLoss);
    loss_total.Register(DeviceType::kCPU, cpu::LossTotal);
    rms_norm_backward.Register(DeviceType::kCPU, cpu::RmsNormBackward);
    rms_norm_forward.Register(DeviceType::kCPU, cpu::RmsNormForward);
    rotary.Register(DeviceType::kCPU, cpu::Rotary);
    sgd_step.Register(DeviceType::kCPU, cpu::SgdStep);
    squared_sums.Register(DeviceType::kCPU, cpu::SquaredSums);
    swiglu_backward.Register(DeviceType::kCPU, cpu::SwigluBackward);
    swiglu_forward.Register(DeviceType::kCPU, cpu::SwigluForward);
    return true;
}();

}  // namespace
}  // namespace infini_train::kernels
