// The kernels of a device without values against those of the CPU.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

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

// Odd on purpose, but for the heads; 35 rows are three blocks of a sum over rows.
constexpr int64_t kBatch = 5;
constexpr int64_t kLength = 7;
constexpr int64_t kWidth = 24;  // (2 + 2 * 1) heads of 6
constexpr int64_t kVocab = 13;
constexpr AttentionHeads kHeads = {.num_heads = 2, .num_kv_heads = 1};
constexpr CrossEntropyOptions kLoss = {.vocab_size = 11};

/// Operands on one device. All zero, so that ids and targets are tokens.
class Operands {
 public:
    Operands(const Device& device, const Device& weight_device, DataType dtype)
        : device_(device), weight_device_(weight_device), dtype_(dtype) {}

    DeviceType type() const { return device_.type; }
    Tensor& X(const Shape& shape) { return Keep(Tensor::Zeros(shape, dtype_, device_)); }
    Tensor& Weight(const Shape& shape) { return Keep(Tensor::Zeros(shape, dtype_, weight_device_)); }
    Tensor& Float32(const Shape& shape) { return Keep(Tensor::Zeros(shape, DataType::kFloat32, device_)); }
    Tensor& Bfloat16(const Shape& shape) { return Keep(Tensor::Zeros(shape, DataType::kBFloat16, device_)); }
    Tensor& Ids(const Shape& shape) { return Keep(Tensor::Zeros(shape, DataType::kInt32, device_)); }
    Tensor& Int64(const Shape& shape) { return Keep(Tensor::Zeros(shape, DataType::kInt64, device_)); }
    Tensor& Count() { return Int64({1}); }

 private:
    Tensor& Keep(const std::shared_ptr<Tensor>& tensor) {
        kept_.push_back(tensor);
        return *tensor;
    }

    Device device_;
    Device weight_device_;
    DataType dtype_;
    TensorList kept_;
};

struct Case {
    std::string name;
    std::function<TensorList(Operands&)> run;
};

const Shape kX = {kBatch, kLength, kWidth};
const Shape kOut = {kBatch, kLength, 12};
const Shape kLse = {kBatch, 2, kLength};
const Shape kLogits = {kBatch, kLength, kVocab};
const Shape kTokens = {kBatch, kLength};
const Shape kRows = {kBatch * kLength};

std::vector<Case> ForwardCases() {
    return {
        {"add", [](Operands& o) -> TensorList { return {add(o.type(), o.X(kX), o.X(kX))}; }},
        {"attention_cached",
         [](Operands& o) -> TensorList {
             const Shape kept = {kBatch, kLength + 1, 1, 6};
             return {attention_cached(o.type(), o.X(kX), kHeads, 0, o.X(kept), o.X(kept)),
                     attention_cached(o.type(), o.X(kX), kHeads, 1, o.X(kept), o.X(kept))};
         }},
        {"attention_forward",
         [](Operands& o) -> TensorList {
             const AttentionOutput output = attention_forward(o.type(), o.X(kX), kHeads);
             return {output.out, output.lse};
         }},
        {"cross_entropy_forward",
         [](Operands& o) -> TensorList {
             const CrossEntropyOutput output = cross_entropy_forward(o.type(), o.X(kLogits), o.Ids(kTokens), kLoss);
             return {output.loss_sum, output.num_valid, output.lse};
         }},
        {"dropout", [](Operands& o) -> TensorList { return {dropout(o.type(), o.X(kX), 0.5f, {})}; }},
        {"embedding_forward",
         [](Operands& o) -> TensorList {
             return {embedding_forward(o.type(), o.Ids(kTokens), o.Weight({kVocab, kWidth}))};
         }},
        {"gelu_forward", [](Operands& o) -> TensorList { return {gelu_forward(o.type(), o.X(kX))}; }},
        {"layer_norm_forward",
         [](Operands& o) -> TensorList {
             const LayerNormOutput output =
                 layer_norm_forward(o.type(), o.X(kX), nullptr, o.Weight({kWidth}), o.Weight({kWidth}), 1e-5f);
             EXPECT_EQ(output.sum, nullptr);
             const LayerNormOutput with_branch =
                 layer_norm_forward(o.type(), o.X(kX), &o.X(kX), o.Weight({kWidth}), o.Weight({kWidth}), 1e-5f);
             return {output.y,      output.mean,      output.rstd,     with_branch.sum,
                     with_branch.y, with_branch.mean, with_branch.rstd};
         }},
        {"linear_forward",
         [](Operands& o) -> TensorList {
             return {linear_forward(o.type(), o.X(kX), o.Weight({kVocab, kWidth}), &o.Weight({kVocab})),
                     linear_forward(o.type(), o.X(kX), o.Weight({kVocab, kWidth}), nullptr)};
         }},
        {"linear_gelu_forward",
         [](Operands& o) -> TensorList {
             const LinearGeluOutput output =
                 linear_gelu_forward(o.type(), o.X(kX), o.Weight({kVocab, kWidth}), &o.Weight({kVocab}));
             return {output.pre, output.y};
         }},
        {"rms_norm_forward",
         [](Operands& o) -> TensorList {
             const RmsNormOutput output = rms_norm_forward(o.type(), o.X(kX), nullptr, o.Weight({kWidth}), 1e-5f);
             EXPECT_EQ(output.sum, nullptr);
             const RmsNormOutput with_branch = rms_norm_forward(o.type(), o.X(kX), &o.X(kX), o.Weight({kWidth}), 1e-5f);
             return {output.y, output.rstd, with_branch.sum, with_branch.y, with_branch.rstd};
         }},
        {"rotary",
         [](Operands& o) -> TensorList {
             return {rotary(o.type(), o.X(kX), o.Float32({kLength + 2, 3, 2}), kHeads, false)};
         }},
        {"swiglu_forward", [](Operands& o) -> TensorList { return {swiglu_forward(o.type(), o.X(kX), o.X(kX))}; }},
    };
}

std::vector<Case> BackwardCases() {
    return {
        {"attention_backward",
         [](Operands& o) -> TensorList {
             return {attention_backward(o.type(), o.X(kOut), o.X(kX), o.X(kOut), o.Float32(kLse), kHeads, true)};
         }},
        {"cross_entropy_backward",
         [](Operands& o) -> TensorList {
             cross_entropy_backward(o.type(), o.Float32({1}), o.X(kLogits), o.Ids(kTokens), o.Float32(kRows), kLoss,
                                    o.X(kLogits));
             return {};
         }},
        {"embedding_backward",
         [](Operands& o) -> TensorList {
             embedding_backward(o.type(), o.X(kX), o.Ids(kTokens), o.Float32({kVocab, kWidth}), true);
             return {};
         }},
        {"gelu_backward", [](Operands& o) -> TensorList { return {gelu_backward(o.type(), o.X(kX), o.X(kX))}; }},
        {"layer_norm_backward",
         [](Operands& o) -> TensorList {
             const LayerNormGrad grad = layer_norm_backward(o.type(), o.X(kX), &o.X(kX), o.X(kX), o.Weight({kWidth}),
                                                            o.Float32(kRows), o.Float32(kRows));
             return {grad.dx, grad.dweight, grad.dbias};
         }},
        {"linear_backward_bias",
         [](Operands& o) -> TensorList {
             linear_backward_bias(o.type(), o.X(kX), o.Float32({kWidth}), true);
             return {};
         }},
        {"linear_backward_input",
         [](Operands& o) -> TensorList {
             return {linear_backward_input(o.type(), o.X(kLogits), o.Weight({kVocab, kWidth}))};
         }},
        {"linear_backward_input_gelu",
         [](Operands& o) -> TensorList {
             return {linear_backward_input_gelu(o.type(), o.X(kLogits), o.Weight({kVocab, kWidth}), o.X(kX))};
         }},
        {"linear_backward_weight",
         [](Operands& o) -> TensorList {
             linear_backward_weight(o.type(), o.X(kLogits), o.X(kX), o.Float32({kVocab, kWidth}), false);
             return {};
         }},
        {"rms_norm_backward",
         [](Operands& o) -> TensorList {
             const RmsNormGrad grad =
                 rms_norm_backward(o.type(), o.X(kX), &o.X(kX), o.X(kX), o.Weight({kWidth}), o.Float32(kRows));
             return {grad.dx, grad.dweight};
         }},
        {"swiglu_backward",
         [](Operands& o) -> TensorList {
             const SwigluGrad grad = swiglu_backward(o.type(), o.X(kX), o.X(kX), o.X(kX));
             return {grad.dgate, grad.dup};
         }},
    };
}

/// What is written in place or has float32 alone.
std::vector<Case> UpdateCases() {
    const auto parameter = [](Operands& o) -> OptimizerParameter {
        const Shape shape = {3, 5};
        return {.master = &o.Float32(shape),
                .value = &o.Bfloat16(shape),
                .grad = &o.Float32(shape),
                .moment1 = &o.Float32(shape),
                .moment2 = &o.Float32(shape)};
    };
    return {
        {"accumulate",
         [](Operands& o) -> TensorList {
             accumulate(o.type(), o.X(kX), o.Float32(kX), true);
             return {};
         }},
        {"adamw_step",
         [parameter](Operands& o) -> TensorList {
             const std::vector<OptimizerParameter> parameters = {parameter(o), parameter(o)};
             adamw_step(o.type(), parameters, o.Float32({1}), {});
             return {};
         }},
        {"cast",
         [](Operands& o) -> TensorList {
             cast(o.type(), o.Float32(kX), o.X(kX));
             return {};
         }},
        {"fill",
         [](Operands& o) -> TensorList {
             fill(o.type(), o.X(kX), 3.0f);
             return {};
         }},
        {"grad_scale",
         [](Operands& o) -> TensorList {
             const GradScaleOutput output = grad_scale(o.type(), o.Float32({3}), o.Count(), 1.0f);
             return {output.norm, output.scale};
         }},
        {"loss_mean",
         [](Operands& o) -> TensorList {
             const LossMean output = loss_mean(o.type(), o.Int64({3, 2}));
             return {output.mean, output.num_valid};
         }},
        {"loss_total",
         [](Operands& o) -> TensorList {
             const std::vector<const Tensor*> sums = {&o.Float32({1}), &o.Float32({1})};
             const std::vector<const Tensor*> counts = {&o.Count(), &o.Count()};
             loss_total(o.type(), sums, counts, o.Int64({2}));
             return {};
         }},
        {"sgd_step",
         [parameter](Operands& o) -> TensorList {
             const std::vector<OptimizerParameter> parameters = {parameter(o)};
             sgd_step(o.type(), parameters, o.Float32({1}), {.momentum = 0.9f});
             return {};
         }},
        {"squared_sums",
         [](Operands& o) -> TensorList {
             const std::vector<const Tensor*> grads = {&o.Float32({3, 5}), &o.Float32({7})};
             squared_sums(o.type(), grads, o.Float32({2}));
             return {};
         }},
    };
}

std::vector<Case> AllCases() {
    std::vector<Case> cases = ForwardCases();
    for (const auto& more : {BackwardCases(), UpdateCases()}) {
        cases.insert(cases.end(), more.begin(), more.end());
    }
    return cases;
}

/// What a kernel gave and took: shape and dtype of each output, and the memory at the end and at most.
struct Seen {
    std::vector<std::string> outputs = {};
    int64_t live_bytes = 0;
    int64_t peak_bytes = 0;
};

Seen See(const Case& kernel, const Device& device, const Device& weight_device, DataType dtype) {
    Operands operands(device, weight_device, dtype);
    const TensorList outputs = kernel.run(operands);
    Seen seen = {.live_bytes = device.allocator->stats().live_bytes,
                 .peak_bytes = device.allocator->stats().peak_bytes};
    for (const std::shared_ptr<Tensor>& output : outputs) {
        EXPECT_TRUE(output->device() == device) << kernel.name << ": on " << ToString(output->device());
        seen.outputs.push_back(ToString(output->shape()) + " " + std::string(Name(output->dtype())));
    }
    return seen;
}

TEST(MetaKernels, GiveAndTakeWhatThoseOfTheCpuDo) {
    for (const Case& kernel : AllCases()) {
        for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
            const Device cpu = MakeCpuDevice();
            const Device meta = MakeMetaDevice();
            const Seen wanted = See(kernel, cpu, cpu, dtype);
            const Seen seen = See(kernel, meta, meta, dtype);
            EXPECT_EQ(seen.outputs, wanted.outputs) << kernel.name << " in " << Name(dtype);
            EXPECT_EQ(seen.live_bytes, wanted.live_bytes) << kernel.name << " in " << Name(dtype);
            EXPECT_EQ(seen.peak_bytes, wanted.peak_bytes) << kernel.name << " in " << Name(dtype);
        }
    }
}

TEST(MetaKernels, AreAllOfTheCpus) {
    EXPECT_EQ(AllCases().size(), 33u);  // the lines of kernels/cpu/register.cc
}

TEST(MetaKernels, TakeNothingFromTheDeviceOfTheirWeights) {
    for (const Case& kernel : ForwardCases()) {
        const Device cpu = MakeCpuDevice();
        const Device reference = MakeCpuDevice();
        const Device meta = MakeMetaDevice();
        const Seen seen = See(kernel, meta, cpu, DataType::kBFloat16);
        EXPECT_EQ(seen.outputs, See(kernel, reference, reference, DataType::kBFloat16).outputs) << kernel.name;
        EXPECT_EQ(meta.allocator->stats().peak_bytes + cpu.allocator->stats().peak_bytes,
                  reference.allocator->stats().peak_bytes)
            << kernel.name;
    }
}

TEST(MetaKernelsDeathTest, RefuseToLeaveOldValuesOnADeviceThatHasThem) {
    const auto x = Tensor::Zeros({2, 3}, DataType::kFloat32, MakeMetaDevice());
    const auto sum = Tensor::Zeros({2, 3}, DataType::kFloat32, MakeCpuDevice());
    EXPECT_DEATH(accumulate(DeviceType::kMeta, *x, *sum, false),
                 "accumulate: on a meta device, with a result \\[2, 3\\] on cpu");
    const OptimizerParameter parameter = {.master = sum.get()};
    EXPECT_DEATH(sgd_step(DeviceType::kMeta, {&parameter, 1}, *x, {}), "sgd_step: on a meta device");
}

TEST(MetaKernelsDeathTest, CheckHeads) {
    const auto qkv = Tensor::Zeros({1, 2, 13}, DataType::kFloat32, MakeMetaDevice());
    EXPECT_DEATH(attention_forward(DeviceType::kMeta, *qkv, kHeads), "packed qkv \\[1, 2, 13\\]");
}

}  // namespace
}  // namespace infini_train::kernels
