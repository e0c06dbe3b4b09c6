#include "infini_train/include/autograd/linear.h"

#include <memory>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/engine.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

using test::RandomTensor;

std::shared_ptr<Tensor> RandomLeaf(const Shape& shape, const Device& device, uint64_t seed,
                                   DataType dtype = DataType::kFloat32) {
    auto leaf = RandomTensor(shape, dtype, device, seed);
    leaf->set_requires_grad(true);
    return leaf;
}

TEST(Linear, HasTheGradientsOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    const auto x = RandomLeaf({2, 3, 5}, device, 1);
    const auto weight = RandomLeaf({7, 5}, device, 2);
    const auto bias = RandomLeaf({7}, device, 3);
    const auto linear = [](const TensorList& inputs) { return Linear(inputs[0], inputs[1], inputs[2]); };
    test::CheckGradients(linear, {x, weight, bias});
    test::CheckGradients(linear, {x, weight, nullptr});
}

TEST(Linear, HasTheGradientsOfWhatRequiresThemAlone) {
    const Device device = MakeCpuDevice();
    const auto linear = [](const TensorList& inputs) { return Linear(inputs[0], inputs[1], inputs[2]); };
    for (size_t required = 0; required < 3; ++required) {
        const TensorList inputs = {RandomTensor({3, 5}, DataType::kFloat32, device, 1),
                                   RandomTensor({7, 5}, DataType::kFloat32, device, 2),
                                   RandomTensor({7}, DataType::kFloat32, device, 3)};
        inputs[required]->set_requires_grad(true);
        test::CheckGradients(linear, inputs);
    }
}

TEST(Linear, KeepsOnlyWhatItsBackwardNeeds) {
    const Device device = MakeCpuDevice();
    const auto x = RandomTensor({3, 5}, DataType::kFloat32, device, 1);
    const auto weight = RandomLeaf({7, 5}, device, 2);
    const auto first = Linear(x, weight, nullptr);
    EXPECT_FALSE(x->owns_storage_alone()) << "for the weight's gradient";
    EXPECT_TRUE(weight->owns_storage_alone()) << "no gradient of x is asked for";
    const auto frozen = RandomTensor({2, 7}, DataType::kFloat32, device, 3);
    const auto second = Linear(first, frozen, nullptr);
    EXPECT_TRUE(first->owns_storage_alone()) << "no gradient of the frozen weight is asked for";
    EXPECT_FALSE(frozen->owns_storage_alone()) << "for the gradient of its input";
}

TEST(Linear, GivesABFloat16WeightAFloat32Gradient) {
    const Device device = MakeCpuDevice();
    const auto x = RandomTensor({3, 5}, DataType::kBFloat16, device, 1);
    const auto weight = RandomLeaf({7, 5}, device, 2, DataType::kBFloat16);
    const auto bias = RandomLeaf({7}, device, 3, DataType::kBFloat16);
    const auto y = Linear(x, weight, bias);
    ASSERT_EQ(y->dtype(), DataType::kBFloat16);
    Backward({y}, {RandomTensor({3, 7}, DataType::kBFloat16, device, 4)});
    EXPECT_EQ(weight->grad()->dtype(), DataType::kFloat32);
    EXPECT_EQ(bias->grad()->dtype(), DataType::kFloat32);
}

}  // namespace
}  // namespace infini_train::autograd
