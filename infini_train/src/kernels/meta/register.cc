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
    accumulate.Register(DeviceType::kMeta, meta::Accumulate);
    adamw_step.Register(DeviceType::kMeta, meta::AdamWStep);
    add.Register(DeviceType::kMeta, meta::Add);
    attention_backward.Register(DeviceType::kMeta, meta::AttentionBackward);
    attention_cached.Register(DeviceType::kMeta, meta::AttentionCached);
    attention_forward.Register(DeviceType::kMeta, meta::AttentionForward);
    cast.Register(DeviceType::kMeta, meta::Cast);
    cross_entropy_backward.Register(DeviceType::kMeta, meta::CrossEntropyBackward);
    cross_entropy_forward.Register(DeviceType::kMeta, meta::CrossEntropyForward);
    dropout.Register(DeviceType::kMeta, meta::Dropout);
    embedding_backward.Register(DeviceType::kMeta, meta::EmbeddingBackward);
    embedding_forward.Register(DeviceType::kMeta, meta::EmbeddingForward);
    fill.Register(DeviceType::kMeta, meta::Fill);
    gelu_backward.Register(DeviceType::kMeta, meta::GeluBackward);
    gelu_forward.Register(DeviceType::kMeta, meta::GeluForward);
    grad_scale.Register(DeviceType::kMeta, meta::GradScale);
    layer_norm_backward.Register(DeviceType::kMeta, meta::LayerNormBackward);
    layer_norm_forward.Register(DeviceType::kMeta, meta::LayerNormForward);
    linear_backward_bias.Register(DeviceType::kMeta, meta::LinearBackwardBias);
    linear_backward_input.Register(DeviceType::kMeta, meta::LinearBackwardInput);
    linear_backward_input_gelu.Register(DeviceType::kMeta, meta::LinearBackwardInputGelu);
    linear_backward_weight.Register(DeviceType::kMeta, meta::LinearBackwardWeight);
    linear_forward.Register(DeviceType::kMeta, meta::LinearForward);
    linear_gelu_forward.Register(DeviceType::kMeta, meta::LinearGeluForward);
    loss_mean.Register(DeviceType::kMeta, meta::MeanLoss);
    loss_total.Register(DeviceType::kMeta, meta::LossTotal);
    rms_norm_backward.Register(DeviceType::kMeta, meta::RmsNormBackward);
    rms_norm_forward.Register(DeviceType::kMeta, meta::RmsNormForward);
    rotary.Register(DeviceType::kMeta, meta::Rotary);
    sgd_step.Register(DeviceType::kMeta, meta::SgdStep);
    squared_sums.Register(DeviceType::kMeta, meta::SquaredSums);
    swiglu_backward.Register(DeviceType::kMeta, meta::SwigluBackward);
    swiglu_forward.Register(DeviceType::kMeta, meta::SwigluForward);
    return true;
}();

}  // namespace
}  // namespace infini_train::kernels
