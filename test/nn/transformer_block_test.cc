#include "infini_train/include/nn/modules/transformer_block.h"

#include <memory>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/add.h"
#include "infini_train/include/nn/modules/attention.h"
#include "infini_train/include/nn/modules/layer_norm.h"
#include "infini_train/include/nn/modules/mlp.h"
#include "infini_train/include/nn/modules/rms_norm.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::nn {
namespace {

constexpr int64_t kDim = 12;

/// With a LayerNorm first and an RmsNorm second.
TransformerBlock::Options MakeParts(const Device& device, Mlp::Activation activation = Mlp::Activation::kGelu) {
    return {
        .ln_1 = std::make_shared<LayerNorm>(LayerNorm::Options{.dim = kDim}, device),
        .attn = std::make_shared<CausalSelfAttention>(
            CausalSelfAttention::Options{.dim = kDim, .num_heads = 2, .num_kv_heads = 1, .init_stddev = 0.5f}, device),
        .ln_2 = std::make_shared<RmsNorm>(RmsNorm::Options{.dim = kDim}, device),
        .mlp = std::make_shared<Mlp>(
            Mlp::Options{.dim = kDim, .hidden_dim = 20, .activation = activation, .init_stddev = 0.5f}, device),
        .dropout_position = std::make_shared<DropoutPosition>()};
}

TEST(TransformerBlock, HasTheBitsOfItsParts) {
    const Device device = MakeCpuDevice();
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const TransformerBlock::Options parts = MakeParts(device);
        const auto block = std::make_shared<TransformerBlock>(parts);
        block->Initialize(3);
        block->To(dtype);
        const auto x = test::RandomTensor({2, 5, kDim}, dtype, device, 1);
        const auto middle = autograd::Add(x, parts.attn->Forward(parts.ln_1->Forward({x}))[0]);
        const auto wanted = autograd::Add(middle, parts.mlp->Forward(parts.ln_2->Forward({middle}))[0]);
        EXPECT_TRUE(test::SameBits(*block->Forward({x})[0], *wanted)) << Name(dtype);
    }
}

TEST(TransformerBlock, HasTheGradientsOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    for (const auto activation : {Mlp::Activation::kGelu, Mlp::Activation::kSwiglu}) {
        const auto block = std::make_shared<TransformerBlock>(MakeParts(device, activation));
        block->Initialize(3);
        const auto x = test::RandomTensor({1, 3, kDim}, DataType::kFloat32, device, 1, 2.0f);
        x->set_requires_grad(true);
        TensorList leaves = block->Parameters();
        leaves.insert(leaves.begin(), x);
        test::CheckGradients([&](const TensorList& inputs) { return block->Forward({inputs[0]})[0]; }, leaves);
    }
}

TEST(TransformerBlock, DropsTheBranchesAndNotTheStream) {
    const Device device = MakeCpuDevice();
    TransformerBlock::Options options = MakeParts(device);
    // All but one in 2^24 of both branches.
    const Dropout::Options dropout = {.p = 0.99999994f, .position = options.dropout_position};
    options.attn_dropout = std::make_shared<Dropout>(dropout);
    options.mlp_dropout = std::make_shared<Dropout>(dropout);
    const auto block = std::make_shared<TransformerBlock>(options);
    block->Initialize(3);
    const auto x = test::RandomTensor({2, 5, kDim}, DataType::kFloat32, device, 1);
    EXPECT_TRUE(test::SameBits(*block->Forward({x})[0], *x));
    options.dropout_position->training = false;
    EXPECT_FALSE(test::SameBits(*block->Forward({x})[0], *x));
}

}  // namespace
}  // namespace infini_train::nn
