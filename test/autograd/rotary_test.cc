#include "infini_train/include/autograd/rotary.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

TEST(Rotary, HasTheGradientOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    const auto qkv = test::RandomTensor({2, 3, (4 + 2 * 2) * 6}, DataType::kFloat32, device, 1);
    qkv->set_requires_grad(true);
    std::vector<float> turns;
    for (int i = 0; i < 3 * 3; ++i) {
        turns.push_back(std::cos(0.3f * static_cast<float>(i)));
        turns.push_back(std::sin(0.3f * static_cast<float>(i)));
    }
    const auto angles = Tensor::FromVector(turns, {3, 3, 2}, device);
    test::CheckGradients([](const TensorList& inputs) { return Rotary(inputs[0], inputs[1], {4, 2}); }, {qkv, angles});
}

}  // namespace
}  // namespace infini_train::autograd
