#include "infini_train/include/autograd/embedding.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/engine.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

TEST(Embedding, HasTheGradientOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    const auto ids = Tensor::FromVector<int32_t>({2, 0, 2, 4}, {2, 2}, device);
    const auto weight = test::RandomTensor({5, 3}, DataType::kFloat32, device, 1);
    weight->set_requires_grad(true);
    test::CheckGradients([](const TensorList& inputs) { return Embedding(inputs[0], inputs[1]); }, {ids, weight});
}

TEST(Embedding, GivesABFloat16WeightAFloat32GradientWhenTheQueueRuns) {
    const Device device = MakeCpuDevice();
    const auto ids = Tensor::FromVector<int32_t>({1, 1}, {2}, device);
    const auto weight = test::RandomTensor({2, 1}, DataType::kBFloat16, device, 1);
    weight->set_requires_grad(true);
    WeightGradQueue queue;
    const auto y = Embedding(ids, weight);
    // 256 + 1 is not a bfloat16.
    Backward({y}, {Tensor::FromVector<BFloat16>({BFloat16(256.0f), BFloat16(1.0f)}, {2, 1}, device)}, &queue);
    EXPECT_EQ(weight->grad(), nullptr);
    queue.Run();
    EXPECT_EQ(weight->grad()->ToVector<float>(), (std::vector<float>{0.0f, 257.0f}));
}

TEST(Embedding, KeepsTheIdsAlone) {
    const Device device = MakeCpuDevice();
    const auto ids = Tensor::FromVector<int32_t>({1, 1}, {2}, device);
    const auto weight = test::RandomTensor({2, 1}, DataType::kFloat32, device, 1);
    weight->set_requires_grad(true);
    const auto y = Embedding(ids, weight);
    EXPECT_FALSE(ids->owns_storage_alone());
    EXPECT_TRUE(weight->owns_storage_alone());
    EXPECT_TRUE(y->owns_storage_alone());
}

}  // namespace
}  // namespace infini_train::autograd
