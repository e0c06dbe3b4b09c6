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
    accumulate.Register(DeviceType::kCUDA, cuda::Accumulate);
    adamw_step.Register(DeviceType::kCUDA, cuda::AdamWStep);
    add.Register(DeviceType::kCUDA, cuda::Add);
    attention_backward.Register(DeviceType::kCUDA, cuda::AttentionBackward);
    attention_cached.Register(DeviceType::kCUDA, cuda::AttentionCached);
    attention_forward.Register(DeviceType::kCUDA, cuda::AttentionForward);
    cast.Register(DeviceType::kCUDA, cuda::Cast);
    cross_entropy_backward.Register(DeviceType::kCUDA, cuda::CrossEntropyBackward);
    cross_entropy_forward.Register(DeviceType::kCUDA, cuda::CrossEntropyForward);
    dropout.Register(DeviceType::kCUDA, cuda::Dropout);
    embedding_backward.Register(DeviceType::kCUDA, cuda::EmbeddingBackward);
    embedding_forward.Register(DeviceType::kCUDA, cuda::EmbeddingForward);
    fill.Register(DeviceType::kCUDA, cuda::Fill);
    gelu_backward.Register(DeviceType::kCUDA, cuda::GeluBackward);
    gelu_forward.Register(DeviceType::kCUDA, cuda::GeluForward);
    grad_scale.Register(DeviceType::kCUDA, cuda::GradScale);
    layer_norm_backward.Register(DeviceType::kCUDA, cuda::LayerNormBackward);
    layer_norm_forward.Register(DeviceType::kCUDA, cuda::LayerNormForward);
    linear_backward_bias.Register(DeviceType::kCUDA, cuda::LinearBackwardBias);
    linear_backward_input.Register(DeviceType::kCUDA, cuda::LinearBackwardInput);
    linear_backward_input_gelu.Register(DeviceType::kCUDA, cuda::LinearBackwardInputGelu);
    linear_backward_weight.Register(DeviceType::kCUDA, cuda::LinearBackwardWeight);
    linear_forward.Register(DeviceType::kCUDA, cuda::LinearForward);
    linear_gelu_forward.Register(DeviceType::kCUDA, cuda::LinearGeluForward);
    loss_mean.Register(DeviceType::kCUDA, cuda::MeanLoss);
    loss_total.Register(DeviceType::kCUDA, cuda::LossTotal);
    rms_norm_backward.Register(DeviceType::kCUDA, cuda::RmsNormBackward);
    rms_norm_forward.Register(DeviceType::kCUDA, cuda::RmsNormForward);
    rotary.Register(DeviceType::kCUDA, cuda::Rotary);
    sgd_step.Register(DeviceType::kCUDA, cuda::SgdStep);
    squared_sums.Register(DeviceType::kCUDA, cuda::SquaredSums);
    swiglu_backward.Register(DeviceType::kCUDA, cuda::SwigluBackward);
    swiglu_forward.Register(DeviceType::kCUDA, cuda::SwigluForward);
    return true;
}();

}  // namespace
}  // namespace infini_train::kernels
