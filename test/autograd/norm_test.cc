#include <memory>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/layer_norm.h"
#include "infini_train/include/autograd/rms_norm.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

constexpr float kEps = 1e-5f;

std::shared_ptr<Tensor> RandomLeaf(const Shape& shape, const Device& device, uint64_t seed) {
    auto leaf = test::RandomTensor(shape, DataType::kFloat32, device, seed, 2.0f);
    leaf->set_requires_grad(true);
    return leaf;
}

TEST(LayerNorm, HasTheGradientsOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    test::CheckGradients([](const TensorList& inputs) { return LayerNorm(inputs[0], inputs[1], inputs[2], kEps); },
                         {RandomLeaf({2, 3, 9}, device, 1), RandomLeaf({9}, device, 2), RandomLeaf({9}, device, 3)});
}

TEST(RmsNorm, HasTheGradientsOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    test::CheckGradients([](const TensorList& inputs) { return RmsNorm(inputs[0], inputs[1], kEps); },
                         {RandomLeaf({2, 3, 9}, device, 1), RandomLeaf({9}, device, 2)});
}

}  // namespace
}  // namespace infini_train::autograd
