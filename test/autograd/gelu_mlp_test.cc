#include "infini_train/include/autograd/gelu_mlp.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/gelu.h"
#include "infini_train/include/autograd/linear.h"
#include "infini_train/include/autograd/weight_grad_queue.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

using test::RandomTensor;
using test::SameBits;

/// x, then weight and bias of each layer: 5 -> 7 -> 3.
TensorList MakeInputs(const Device& device, DataType dtype = DataType::kFloat32) {
    return {RandomTensor({2, 3, 5}, dtype, device, 1), RandomTensor({7, 5}, dtype, device, 2),
            RandomTensor({7}, dtype, device, 3), RandomTensor({3, 7}, dtype, device, 4),
            RandomTensor({3}, dtype, device, 5)};
}

TensorList MakeLeaves(const Device& device, DataType dtype = DataType::kFloat32) {
    TensorList inputs = MakeInputs(device, dtype);
    for (const std::shared_ptr<Tensor>& input : inputs) {
        input->set_requires_grad(true);
    }
    return inputs;
}

std::shared_ptr<Tensor> Apply(const TensorList& inputs) {
    return GeluMlp(inputs[0],
                   {.up_weight = inputs[1], .up_bias = inputs[2], .down_weight = inputs[3], .down_bias = inputs[4]});
}

std::shared_ptr<Tensor> ApplyParts(const TensorList& inputs) {
    return Linear(Gelu(Linear(inputs[0], inputs[1], inputs[2])), inputs[3], inputs[4]);
}

TEST(GeluMlp, HasTheGradientsOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    TensorList inputs = MakeLeaves(device);
    test::CheckGradients(Apply, inputs);
    inputs[2] = nullptr;
    inputs[4] = nullptr;
    test::CheckGradients(Apply, inputs);
}

TEST(GeluMlp, HasTheGradientsOfWhatRequiresThemAlone) {
    const Device device = MakeCpuDevice();
    for (size_t required = 0; required < 5; ++required) {
        const TensorList inputs = MakeInputs(device);
        inputs[required]->set_requires_grad(true);
        SCOPED_TRACE(testing::Message() << "input " << required);
        test::CheckGradients(Apply, inputs);
    }
}

TEST(GeluMlp, KeepsOnlyWhatItsBackwardNeeds) {
    const Device device = MakeCpuDevice();
    const std::vector<std::vector<bool>> kept = {{false, true, false, true, false},    // for x: the weights
                                                 {true, false, false, true, false},    // for the first weight: x
                                                 {false, false, false, true, false},   // for its bias
                                                 {false, false, false, false, false},  // the second's needs gelu(...)
                                                 {false, false, false, false, false}};
    for (size_t required = 0; required < 5; ++required) {
        const TensorList inputs = MakeInputs(device);
        inputs[required]->set_requires_grad(true);
        const auto y = Apply(inputs);
        for (size_t i = 0; i < 5; ++i) {
            EXPECT_EQ(!inputs[i]->owns_storage_alone(), kept[required][i]) << "input " << i << " for " << required;
        }
    }
}

TEST(GeluMlp, HasTheBitsOfItsParts) {
    const Device device = MakeCpuDevice();
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const bool queued : {false, true}) {
            const TensorList fused = MakeLeaves(device, dtype);
            const TensorList parts = MakeLeaves(device, dtype);
            const auto dy = RandomTensor({2, 3, 3}, dtype, device, 6);
            // Twice, so that the second adds.
            for (int m = 0; m < 2; ++m) {
                const auto y = Apply(fused);
                const auto wanted = ApplyParts(parts);
                EXPECT_TRUE(SameBits(*y, *wanted)) << Name(dtype);
                WeightGradQueue queue;
                Backward({y}, {dy}, queued ? &queue : nullptr);
                EXPECT_EQ(queue.size(), queued ? 4u : 0u);
                queue.Run();
                Backward({wanted}, {dy});
            }
            for (size_t i = 0; i < fused.size(); ++i) {
                EXPECT_TRUE(SameBits(*fused[i]->grad(), *parts[i]->grad())) << "input " << i << " in " << Name(dtype);
            }
        }
    }
}

}  // namespace
}  // namespace infini_train::autograd
