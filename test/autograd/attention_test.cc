#include "infini_train/include/autograd/attention.h"

#include "gtest/gtest.h"

#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

void CheckAttention(int64_t batch_size, int64_t length, const kernels::AttentionHeads& heads, int64_t head_dim) {
    const int64_t width = (heads.num_heads + 2 * heads.num_kv_heads) * head_dim;
    const auto qkv = test::RandomTensor({batch_size, length, width}, DataType::kFloat32, MakeCpuDevice(), 1);
    qkv->set_requires_grad(true);
    test::CheckGradients([&](const TensorList& inputs) { return Attention(inputs[0], heads); }, {qkv});
}

TEST(Attention, HasTheGradientOfFiniteDifferences) {
    CheckAttention(2, 5, {2, 2}, 3);
    CheckAttention(1, 1, {1, 1}, 4);
}

TEST(Attention, HasTheGradientOfFiniteDifferencesWithSharedKeys) {
    CheckAttention(1, 6, {4, 2}, 4);
}

TEST(Attention, HasTheGradientOfFiniteDifferencesOverABlock) {
    CheckAttention(1, 66, {2, 1}, 2);
}

}  // namespace
}  // namespace infini_train::autograd
