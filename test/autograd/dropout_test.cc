#include "infini_train/include/autograd/dropout.h"

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/engine.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

constexpr kernels::DropoutKey kKey = {.seed = 1, .step = 2, .layer = 3, .first_sample = 4};

std::shared_ptr<Tensor> RandomLeaf(const Device& device) {
    auto leaf = test::RandomTensor({3, 11}, DataType::kFloat32, device, 1);
    leaf->set_requires_grad(true);
    return leaf;
}

TEST(Dropout, HasTheGradientOfFiniteDifferences) {
    test::CheckGradients([](const TensorList& inputs) { return Dropout(inputs[0], 0.4f, kKey); },
                         {RandomLeaf(MakeCpuDevice())});
}

TEST(Dropout, OfZeroReturnsItsInput) {
    const auto x = RandomLeaf(MakeCpuDevice());
    EXPECT_EQ(Dropout(x, 0.0f, kKey), x);
}

TEST(Dropout, KeepsNoTensorForItsBackward) {
    const Device device = MakeCpuDevice();
    const auto x = RandomLeaf(device);
    const int64_t before = device.allocator->stats().live_bytes;
    auto y = Dropout(x, 0.4f, kKey);
    EXPECT_EQ(device.allocator->stats().live_bytes, 2 * before) << "y alone is new, as large as x";
    EXPECT_TRUE(x->owns_storage_alone());
    EXPECT_TRUE(y->owns_storage_alone());
}

}  // namespace
}  // namespace infini_train::autograd
