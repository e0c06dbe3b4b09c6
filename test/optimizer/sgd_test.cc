#include "infini_train/include/optimizer/sgd.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace infini_train::optimizers {
namespace {

std::shared_ptr<Tensor> LeafOfOne(const Device& device, float grad) {
    std::shared_ptr<Tensor> leaf = Tensor::FromVector(std::vector<float>{1.0f}, {1}, device);
    leaf->set_requires_grad(true);
    *leaf->AcquireGrad().grad->data<float>() = grad;
    return leaf;
}

TEST(Sgd, TakesThePlainStep) {
    const std::shared_ptr<Tensor> parameter = LeafOfOne(MakeCpuDevice(), 0.5f);
    Sgd optimizer({parameter}, {.lr = 0.25f});
    EXPECT_TRUE(optimizer.moments().empty());
    optimizer.Step();
    EXPECT_EQ(parameter->ToVector<float>()[0], 0.875f);
    optimizer.Step();
    EXPECT_EQ(parameter->ToVector<float>()[0], 0.75f);
}

TEST(Sgd, RemembersGradientsWithMomentum) {
    const std::shared_ptr<Tensor> parameter = LeafOfOne(MakeCpuDevice(), 0.5f);
    Sgd optimizer({parameter}, {.lr = 0.25f, .momentum = 0.5f});
    ASSERT_EQ(optimizer.moments().size(), 1u);
    EXPECT_EQ(optimizer.moments()[0].name, "momentum");
    optimizer.Step();  // m = 0.5
    EXPECT_EQ(parameter->ToVector<float>()[0], 0.875f);
    optimizer.Step();  // m = 0.75
    EXPECT_EQ(parameter->ToVector<float>()[0], 0.6875f);
    EXPECT_EQ(optimizer.moments()[0].tensors[0]->ToVector<float>()[0], 0.75f);
}

}  // namespace
}  // namespace infini_train::optimizers
