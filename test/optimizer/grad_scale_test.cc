#include "infini_train/include/optimizer/grad_scale.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/optimizer/sgd.h"

namespace infini_train::optimizers {
namespace {

class GradScaleTest : public testing::Test {
 protected:
    std::shared_ptr<Tensor> Leaf(const std::vector<float>& grad) const {
        const Shape shape = {static_cast<int64_t>(grad.size())};
        std::shared_ptr<Tensor> leaf = Tensor::Zeros(shape, DataType::kFloat32, device_);
        leaf->set_requires_grad(true);
        CopyFromHost(grad.data(), *leaf->AcquireGrad().grad);
        return leaf;
    }
    std::shared_ptr<Tensor> Valid(int64_t num_valid) const {
        return Tensor::FromVector(std::vector<int64_t>{num_valid}, {1}, device_);
    }
    static float Value(const std::shared_ptr<Tensor>& tensor) { return tensor->ToVector<float>()[0]; }

    Device device_ = MakeCpuDevice();
};

TEST_F(GradScaleTest, CountsOnlyParametersWithAGradient) {
    const TensorList parameters = {Leaf({3.0f, 0.0f}), Leaf({100.0f}), Leaf({0.0f, 0.0f, 4.0f})};
    parameters[1]->ClearGrad();
    const GradScale result = ComputeGradScale(parameters, *Valid(2), 0.0f);
    EXPECT_FLOAT_EQ(Value(result.norm), 2.5f);
    EXPECT_FLOAT_EQ(Value(result.scale), 0.5f);
}

TEST_F(GradScaleTest, GivesTheMeanOverAllTargetsOfUnevenMicrobatches) {
    // 1 valid target in a micro-batch with gradient 8, 31 in one with gradients of 1: the mean over 32 targets, not a
    // mean of means.
    const std::shared_ptr<Tensor> parameter = Leaf({8.0f + 31.0f});
    Sgd optimizer({parameter}, {.lr = 1.0f});
    optimizer.Step(*ComputeGradScale({parameter}, *Valid(1 + 31), 0.0f).scale);
    EXPECT_FLOAT_EQ(Value(parameter), -39.0f / 32.0f);
}

TEST_F(GradScaleTest, ClipsTheStepToTheLimit) {
    const TensorList parameters = {Leaf({30.0f}), Leaf({40.0f})};
    const GradScale result = ComputeGradScale(parameters, *Valid(10), 2.0f);
    EXPECT_FLOAT_EQ(Value(result.norm), 5.0f);
    Sgd optimizer(parameters, {.lr = 1.0f});
    optimizer.Step(*result.scale);
    EXPECT_NEAR(std::hypot(Value(parameters[0]), Value(parameters[1])), 2.0, 2e-6);
    EXPECT_NEAR(Value(parameters[0]) / Value(parameters[1]), 0.75, 1e-6);
}

TEST_F(GradScaleTest, StandsStillWithoutTargets) {
    const TensorList parameters = {Leaf({30.0f})};
    const GradScale result = ComputeGradScale(parameters, *Valid(0), 1.0f);
    EXPECT_EQ(Value(result.norm), 0.0f);
    Sgd(parameters, {.lr = 1.0f}).Step(*result.scale);
    EXPECT_EQ(Value(parameters[0]), 0.0f);
}

TEST_F(GradScaleTest, KeepsABrokenGradientOutOfAllParameters) {
    for (const float max_norm : {0.0f, 1.0f}) {
        const TensorList parameters = {Leaf({1.0f}), Leaf({std::numeric_limits<float>::infinity()})};
        const GradScale result = ComputeGradScale(parameters, *Valid(4), max_norm);
        EXPECT_FALSE(std::isfinite(Value(result.norm)));
        Sgd(parameters, {.lr = 1.0f}).Step(*result.scale);
        EXPECT_EQ(Value(parameters[0]), 0.0f);
        EXPECT_EQ(Value(parameters[1]), 0.0f);
    }
}

TEST_F(GradScaleTest, WorksWithoutAnyGradient) {
    const GradScale result = ComputeGradScale({}, *Valid(4), 1.0f);
    EXPECT_EQ(Value(result.norm), 0.0f);
    EXPECT_FLOAT_EQ(Value(result.scale), 0.25f);
}

}  // namespace
}  // namespace infini_train::optimizers
