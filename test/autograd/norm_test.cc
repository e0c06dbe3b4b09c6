#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/add.h"
#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/layer_norm.h"
#include "infini_train/include/autograd/rms_norm.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

using test::SameBits;

constexpr float kEps = 1e-5f;

std::shared_ptr<Tensor> RandomLeaf(const Shape& shape, const Device& device, uint64_t seed) {
    auto leaf = test::RandomTensor(shape, DataType::kFloat32, device, seed, 2.0f);
    leaf->set_requires_grad(true);
    return leaf;
}

/// {x, branch, parameters...} -> {sum, y}
struct Norm {
    std::string name;
    std::function<TensorList(const TensorList&)> apply;
    size_t num_parameters;
};

std::vector<Norm> Norms() {
    return {{"layer norm",
             [](const TensorList& inputs) {
                 auto [sum, y] = LayerNorm(inputs[0], inputs[1], inputs[2], inputs[3], kEps);
                 return TensorList{sum, y};
             },
             2},
            {"RMS norm",
             [](const TensorList& inputs) {
                 auto [sum, y] = RmsNorm(inputs[0], inputs[1], inputs[2], kEps);
                 return TensorList{sum, y};
             },
             1}};
}

/// x, a branch or null, and the parameters: leaves.
TensorList MakeInputs(const Norm& norm, bool has_branch, const Device& device) {
    TensorList inputs = {RandomLeaf({2, 3, 9}, device, 1),
                         has_branch ? RandomLeaf({2, 3, 9}, device, 2) : std::shared_ptr<Tensor>()};
    for (size_t i = 0; i < norm.num_parameters; ++i) {
        inputs.push_back(RandomLeaf({9}, device, 3 + i));
    }
    return inputs;
}

TEST(Norm, HasTheGradientsOfFiniteDifferences) {
    const Device device = MakeCpuDevice();
    for (const Norm& norm : Norms()) {
        for (const bool has_branch : {false, true}) {
            SCOPED_TRACE(norm.name + (has_branch ? " with a branch" : ""));
            test::CheckGradients([&](const TensorList& inputs) { return norm.apply(inputs)[1]; },
                                 MakeInputs(norm, has_branch, device));
        }
    }
}

TEST(Norm, AddsTheGradientOfTheSumThatGoesOn) {
    const Device device = MakeCpuDevice();
    for (const Norm& norm : Norms()) {
        for (const bool has_branch : {false, true}) {
            SCOPED_TRACE(norm.name + (has_branch ? " with a branch" : ""));
            test::CheckGradients(
                [&](const TensorList& inputs) {
                    const TensorList outputs = norm.apply(inputs);
                    return Add(outputs[0], Add(outputs[0], outputs[1]));
                },
                MakeInputs(norm, has_branch, device));
        }
    }
}

TEST(Norm, PassesTheGradientOfTheSumOnWhereNothingDependsOnTheNorm) {
    const Device device = MakeCpuDevice();
    for (const Norm& norm : Norms()) {
        for (const bool has_branch : {false, true}) {
            SCOPED_TRACE(norm.name + (has_branch ? " with a branch" : ""));
            const TensorList inputs = MakeInputs(norm, has_branch, device);
            const auto dsum = test::RandomTensor({2, 3, 9}, DataType::kFloat32, device, 9);
            Backward({norm.apply(inputs)[0]}, {dsum});
            EXPECT_TRUE(SameBits(*inputs[0]->grad(), *dsum));
            if (has_branch) {
                EXPECT_TRUE(SameBits(*inputs[1]->grad(), *dsum));
            }
            EXPECT_EQ(inputs[2]->grad(), nullptr);
        }
    }
}

TEST(Norm, SeesTheInputItselfWithoutABranch) {
    const Device device = MakeCpuDevice();
    for (const Norm& norm : Norms()) {
        const TensorList inputs = MakeInputs(norm, /*has_branch=*/false, device);
        EXPECT_EQ(norm.apply(inputs)[0]->raw_data(), inputs[0]->raw_data()) << norm.name;
    }
}

TEST(Norm, KeepsTheSumAloneForTheBackward) {
    const Device device = MakeCpuDevice();
    for (const Norm& norm : Norms()) {
        const TensorList inputs = MakeInputs(norm, /*has_branch=*/true, device);
        TensorList outputs = norm.apply(inputs);
        EXPECT_TRUE(inputs[0]->owns_storage_alone()) << norm.name;
        EXPECT_TRUE(inputs[1]->owns_storage_alone()) << norm.name;
        EXPECT_FALSE(outputs[0]->owns_storage_alone()) << norm.name;
        EXPECT_TRUE(outputs[1]->owns_storage_alone()) << norm.name;
    }
}

}  // namespace
}  // namespace infini_train::autograd
