#include "gtest/gtest.h"

#include "infini_train/include/autograd/gelu.h"
#include "infini_train/include/autograd/swiglu.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

std::shared_ptr<Tensor> RandomLeaf(const Shape& shape, const Device& device, uint64_t seed) {
    auto leaf = test::RandomTensor(shape, DataType::kFloat32, device, seed, 3.0f);
    leaf->set_requires_grad(true);
    return leaf;
}

TEST(Gelu, HasTheGradientOfFiniteDifferences) {
    test::CheckGradients([](const TensorList& inputs) { return Gelu(inputs[0]); },
                         {RandomLeaf({3, 7}, MakeCpuDevice(), 1)});
}

TEST(Swiglu, HasTheGradientsOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    test::CheckGradients([](const TensorList& inputs) { return Swiglu(inputs[0], inputs[1]); },
                         {RandomLeaf({3, 7}, device, 1), RandomLeaf({3, 7}, device, 2)});
}

}  // namespace
}  // namespace infini_train::autograd
