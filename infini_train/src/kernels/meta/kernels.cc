#include <cstdint>
#include <memory>
#include <span>

#include "glog/logging.h"

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
#include "infini_train/src/kernels/cpu/fixed_order_sum.h"

// All kernels in one file, because none computes: each takes from the allocator what the CPU's takes, results and what
// is needed on the way. Results are on the device of the activation; weights may be elsewhere. What arguments must look
// like is left to the devices that compute, except that nothing with values may be written: it would keep old ones.

namespace infini_train::kernels::meta {
namespace {

std::shared_ptr<Tensor> Like(const Tensor& x) {
    return Tensor::Empty(x.shape(), x.dtype(), x.device());
}

std::shared_ptr<Tensor> Float32(const Shape& shape, const Device& device) {
    return Tensor::Empty(shape, DataType::kFloat32, device);
}

/// x with another last axis.
std::shared_ptr<Tensor> LikeRows(const Tensor& x, int64_t num_columns) {
    Shape shape = x.shape();
    shape.back() = num_columns;
    return Tensor::Empty(shape, x.dtype(), x.device());
}

/// The partial sums of a gradient that is summed over the rows of dy.
std::shared_ptr<Tensor> PartialSums(const Tensor& dy, int64_t num_grads) {
    return Float32({num_grads, cpu::RowBlocks(dy.num_rows()).num_blocks, dy.dim(-1)}, dy.device());
}

void CheckMayWrite(const char* operation, const Tensor& result) {
    CHECK(result.device().type == DeviceType::kMeta) << operation << ": on a meta device, with a result "
                                                     << ToString(result.shape()) << " on " << ToString(result.device());
}

void CheckMayUpdate(const char* operation, std::span<const OptimizerParameter> parameters) {
    for (const OptimizerParameter& parameter : parameters) {
        CheckMayWrite(operation, *parameter.master);
    }
}

}  // namespace

void Accumulate(const Tensor& /*x*/, Tensor& sum, bool /*accumulate*/) {
    CheckMayWrite("accumulate", sum);
}

void AdamWStep(std::span<const OptimizerParameter> parameters, const Tensor& /*grad_scale*/,
               const AdamWOptions& /*options*/) {
    CheckMayUpdate("adamw_step", parameters);
}

std::shared_ptr<Tensor> Add(const Tensor& a, const Tensor& /*b*/) {
    return Like(a);
}

std::shared_ptr<Tensor> AttentionBackward(const Tensor& /*dout*/, const Tensor& qkv, const Tensor& /*out*/,
                                          const Tensor& lse, const AttentionHeads& /*heads*/, bool /*deterministic*/) {
    const auto delta = Like(lse);
    return Like(qkv);
}

std::shared_ptr<Tensor> AttentionCached(const Tensor& qkv, const AttentionHeads& heads, int64_t start, Tensor& keys,
                                        Tensor& values) {
    CheckMayWrite("attention_cached", keys);
    CheckMayWrite("attention_cached", values);
    return start == 0 ? AttentionForward(qkv, heads).out : LikeRows(qkv, heads.num_heads * HeadDim(qkv, heads));
}

AttentionOutput AttentionForward(const Tensor& qkv, const AttentionHeads& heads) {
    return {.out = LikeRows(qkv, heads.num_heads * HeadDim(qkv, heads)),
            .lse = Float32({qkv.dim(0), heads.num_heads, qkv.dim(1)}, qkv.device())};
}

void Cast(const Tensor& /*x*/, Tensor& y) {
    CheckMayWrite("cast", y);
}

void CrossEntropyBackward(const Tensor& /*dloss_sum*/, const Tensor& /*logits*/, const Tensor& /*targets*/,
                          const Tensor& /*lse*/, const CrossEntropyOptions& /*options*/, Tensor& dlogits) {
    CheckMayWrite("cross_entropy_backward", dlogits);
}

CrossEntropyOutput CrossEntropyForward(const Tensor& logits, const Tensor& /*targets*/,
                                       const CrossEntropyOptions& /*options*/) {
    return {.loss_sum = Float32({1}, logits.device()),
            .num_valid = Tensor::Empty({1}, DataType::kInt64, logits.device()),
            .lse = Float32({logits.num_rows()}, logits.device())};
}

std::shared_ptr<Tensor> Dropout(const Tensor& x, float /*p*/, const DropoutKey& /*key*/) {
    return Like(x);
}

void EmbeddingBackward(const Tensor& /*dy*/, const Tensor& /*ids*/, Tensor& dweight, bool /*accumulate*/) {
    CheckMayWrite("embedding_backward", dweight);
}

std::shared_ptr<Tensor> EmbeddingForward(const Tensor& ids, const Tensor& weight) {
    Shape shape = ids.shape();
    shape.push_back(weight.dim(1));
    return Tensor::Empty(shape, weight.dtype(), ids.device());
}

void Fill(Tensor& x, float /*value*/) {
    CheckMayWrite("fill", x);
}

std::shared_ptr<Tensor> GeluBackward(const Tensor& /*dy*/, const Tensor& x) {
    return Like(x);
}

std::shared_ptr<Tensor> GeluForward(const Tensor& x) {
    return Like(x);
}

GradScaleOutput GradScale(const Tensor& squared_sums, const Tensor& /*num_valid*/, float /*max_norm*/) {
    return {.norm = Float32({1}, squared_sums.device()), .scale = Float32({1}, squared_sums.device())};
}

LayerNormGrad LayerNormBackward(const Tensor& dy, const Tensor* /*dsum*/, const Tensor& sum, const Tensor& weight,
                                const Tensor& /*mean*/, const Tensor& /*rstd*/) {
    const auto partial_sums = PartialSums(dy, 2);
    return {.dx = Like(sum),
            .dweight = Float32(weight.shape(), sum.device()),
            .dbias = Float32(weight.shape(), sum.device())};
}

LayerNormOutput LayerNormForward(const Tensor& x, const Tensor* branch, const Tensor& /*weight*/,
                                 const Tensor& /*bias*/, float /*eps*/) {
    return {.sum = branch == nullptr ? nullptr : Like(x),
            .y = Like(x),
            .mean = Float32({x.num_rows()}, x.device()),
            .rstd = Float32({x.num_rows()}, x.device())};
}

void LinearBackwardBias(const Tensor& dy, Tensor& dbias, bool /*accumulate*/) {
    CheckMayWrite("linear_backward_bias", dbias);
    const auto partial_sums = PartialSums(dy, 1);
}

std::shared_ptr<Tensor> LinearBackwardInput(const Tensor& dy, const Tensor& weight) {
    return LikeRows(dy, weight.dim(1));
}

std::shared_ptr<Tensor> LinearBackwardInputGelu(const Tensor& dy, const Tensor& weight, const Tensor& pre) {
    const auto dgelu = LikeRows(dy, weight.dim(1));
    return Like(pre);
}

void LinearBackwardWeight(const Tensor& /*dy*/, const Tensor& /*x*/, Tensor& dweight, bool /*accumulate*/) {
    CheckMayWrite("linear_backward_weight", dweight);
}

std::shared_ptr<Tensor> LinearForward(const Tensor& x, const Tensor& weight, const Tensor* /*bias*/) {
    return LikeRows(x, weight.dim(0));
}

LinearGeluOutput LinearGeluForward(const Tensor& x, const Tensor& weight, const Tensor* /*bias*/) {
    return {.pre = LikeRows(x, weight.dim(0)), .y = LikeRows(x, weight.dim(0))};
}

void LossTotal(std::span<const Tensor* const> /*sums*/, std::span<const Tensor* const> /*counts*/, Tensor& total) {
    CheckMayWrite("loss_total", total);
}

LossMean MeanLoss(const Tensor& totals) {
    return {.mean = Float32({1}, totals.device()), .num_valid = Tensor::Empty({1}, DataType::kInt64, totals.device())};
}

RmsNormGrad RmsNormBackward(const Tensor& dy, const Tensor* /*dsum*/, const Tensor& sum, const Tensor& weight,
                            const Tensor& /*rstd*/) {
    const auto partial_sums = PartialSums(dy, 1);
    return {.dx = Like(sum), .dweight = Float32(weight.shape(), sum.device())};
}

RmsNormOutput RmsNormForward(const Tensor& x, const Tensor* branch, const Tensor& /*weight*/, float /*eps*/) {
    return {.sum = branch == nullptr ? nullptr : Like(x), .y = Like(x), .rstd = Float32({x.num_rows()}, x.device())};
}

std::shared_ptr<Tensor> Rotary(const Tensor& qkv, const Tensor& /*angles*/, const AttentionHeads& /*heads*/,
                               bool /*inverse*/) {
    return Like(qkv);
}

void SgdStep(std::span<const OptimizerParameter> parameters, const Tensor& /*grad_scale*/,
             const SgdOptions& /*options*/) {
    CheckMayUpdate("sgd_step", parameters);
}

void SquaredSums(std::span<const Tensor* const> /*grads*/, Tensor& squared_sums) {
    CheckMayWrite("squared_sums", squared_sums);
}

SwigluGrad SwigluBackward(const Tensor& /*dy*/, const Tensor& gate, const Tensor& up) {
    return {.dgate = Like(gate), .dup = Like(up)};
}

std::shared_ptr<Tensor> SwigluForward(const Tensor& gate, const Tensor& /*up*/) {
    return Like(gate);
}

}  // namespace infini_train::kernels::meta
