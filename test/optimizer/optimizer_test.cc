#include "infini_train/include/optimizer/optimizer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/optimizer/adamw.h"
#include "infini_train/include/optimizer/sgd.h"
#include "test/support/random_tensor.h"

namespace infini_train::optimizers {
namespace {

using test::RandomTensor;
using test::SameBits;

using Groups = std::vector<ParameterGroup>;

std::unique_ptr<Optimizer> MakeAdamW(const TensorList& parameters) {
    return std::make_unique<AdamW>(parameters, AdamW::Options{.lr = 0.1f, .weight_decay = 0.1f});
}
std::unique_ptr<Optimizer> MakeSgd(const TensorList& parameters) {
    return std::make_unique<Sgd>(parameters, Sgd::Options{.lr = 0.1f, .weight_decay = 0.1f});
}
std::unique_ptr<Optimizer> MakeMomentumSgd(const TensorList& parameters) {
    return std::make_unique<Sgd>(parameters, Sgd::Options{.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f});
}

std::unique_ptr<Optimizer> MakeAdamWOfGroups(const Groups& groups) {
    return std::make_unique<AdamW>(groups, AdamW::Options{.lr = 0.1f});
}
std::unique_ptr<Optimizer> MakeSgdOfGroups(const Groups& groups) {
    return std::make_unique<Sgd>(groups, Sgd::Options{.lr = 0.1f, .momentum = 0.9f});
}

using Factory = std::unique_ptr<Optimizer> (*)(const TensorList&);

/// What every optimizer does.
class AnyOptimizer : public testing::TestWithParam<Factory> {
 protected:
    std::shared_ptr<Tensor> Leaf(const Shape& shape, DataType dtype = DataType::kFloat32) const {
        std::shared_ptr<Tensor> leaf = RandomTensor(shape, dtype, device_, 7);
        if (dtype != DataType::kFloat32) {
            leaf->set_master(RandomTensor(shape, DataType::kFloat32, device_, 7));
        }
        leaf->set_requires_grad(true);
        return leaf;
    }

    static void SetGrad(Tensor& leaf, float value) {
        std::vector<float> values(static_cast<size_t>(leaf.num_elements()), value);
        CopyFromHost(values.data(), *leaf.AcquireGrad().grad);
    }

    std::shared_ptr<Tensor> Copy(const Tensor& tensor) const {
        std::shared_ptr<Tensor> copy = Tensor::Empty(tensor.shape(), tensor.dtype(), device_);
        copy->CopyFrom(tensor);
        return copy;
    }

    Device device_ = MakeCpuDevice();
};

TEST_P(AnyOptimizer, DecaysOnlyParametersOfTwoOrMoreDimensions) {
    const TensorList parameters = {Leaf({3, 4}), Leaf({4}), Leaf({2, 3, 2}), Leaf({1}), Leaf({1, 4})};
    const std::unique_ptr<Optimizer> optimizer = GetParam()(parameters);
    std::vector<std::vector<float>> before;
    for (const std::shared_ptr<Tensor>& parameter : parameters) {
        SetGrad(*parameter, 0.0f);
        before.push_back(parameter->ToVector<float>());
    }
    optimizer->Step();
    for (size_t p = 0; p < parameters.size(); ++p) {
        const std::vector<float> after = parameters[p]->ToVector<float>();
        for (size_t i = 0; i < after.size(); ++i) {
            if (parameters[p]->num_dims() >= 2) {
                EXPECT_FLOAT_EQ(after[i], before[p][i] * (1.0f - 0.1f * 0.1f));
            } else {
                EXPECT_EQ(after[i], before[p][i]) << ToString(parameters[p]->shape());
            }
        }
    }
}

TEST_P(AnyOptimizer, LeavesAParameterWithoutAGradientAsItIs) {
    const TensorList parameters = {Leaf({3, 4}), Leaf({5, 5}), Leaf({5, 6}, DataType::kBFloat16)};
    const std::unique_ptr<Optimizer> optimizer = GetParam()(parameters);
    for (const std::shared_ptr<Tensor>& parameter : parameters) {
        SetGrad(*parameter, 0.5f);
    }
    optimizer->Step();  // moments are not zero any more
    TensorList before;
    for (const size_t p : {1u, 2u}) {
        parameters[p]->ClearGrad();
        before.push_back(Copy(*parameters[p]));
        for (const Moments& moments : optimizer->moments()) {
            before.push_back(Copy(*moments.tensors[p]));
        }
    }
    const std::shared_ptr<Tensor> with_grad = Copy(*parameters[0]);
    optimizer->Step();
    EXPECT_FALSE(SameBits(*parameters[0], *with_grad));
    size_t next = 0;
    for (const size_t p : {1u, 2u}) {
        EXPECT_TRUE(SameBits(*parameters[p], *before[next++])) << p;
        for (const Moments& moments : optimizer->moments()) {
            EXPECT_TRUE(SameBits(*moments.tensors[p], *before[next++])) << p << " " << moments.name;
        }
    }
}

TEST_P(AnyOptimizer, UpdatesTheMasterAndRoundsItsCopy) {
    const std::shared_ptr<Tensor> full = Leaf({9, 3});
    const std::shared_ptr<Tensor> half = Leaf({9, 3}, DataType::kBFloat16);
    const std::unique_ptr<Optimizer> optimizer = GetParam()({full, half});
    for (int step = 0; step < 3; ++step) {
        SetGrad(*full, 0.25f);
        SetGrad(*half, 0.25f);
        optimizer->Step();
        EXPECT_TRUE(SameBits(*half->master(), *full));
        const std::vector<float> values = full->ToVector<float>();
        const std::vector<BFloat16> rounded = half->ToVector<BFloat16>();
        for (size_t i = 0; i < values.size(); ++i) {
            EXPECT_EQ(rounded[i].bits, BFloat16(values[i]).bits);
        }
    }
}

TEST_P(AnyOptimizer, MultipliesGradientsWithTheScale) {
    const std::shared_ptr<Tensor> scaled = Leaf({4});
    const std::shared_ptr<Tensor> plain = Leaf({4});
    const std::unique_ptr<Optimizer> one = GetParam()({scaled});
    const std::unique_ptr<Optimizer> other = GetParam()({plain});
    SetGrad(*scaled, 2.0f);
    SetGrad(*plain, 0.5f);
    one->Step(*Tensor::FromVector(std::vector<float>{0.25f}, {1}, device_));
    other->Step();
    EXPECT_TRUE(SameBits(*scaled, *plain));
    for (size_t i = 0; i < one->moments().size(); ++i) {
        EXPECT_TRUE(SameBits(*one->moments()[i].tensors[0], *other->moments()[i].tensors[0]));
    }
}

TEST_P(AnyOptimizer, ChangesNothingWhenTheScaleIsNotANumber) {
    const std::shared_ptr<Tensor> parameter = Leaf({3, 4});
    const std::unique_ptr<Optimizer> optimizer = GetParam()({parameter});
    const std::shared_ptr<Tensor> before = Copy(*parameter);
    SetGrad(*parameter, 1.0f);
    optimizer->Step(*Tensor::FromVector(std::vector<float>{std::numeric_limits<float>::quiet_NaN()}, {1}, device_));
    EXPECT_TRUE(SameBits(*parameter, *before));
    for (const Moments& moments : optimizer->moments()) {
        EXPECT_TRUE(SameBits(*moments.tensors[0], *Tensor::Zeros({3, 4}, DataType::kFloat32, device_)));
    }
    EXPECT_EQ(optimizer->step(), 1);
}

TEST_P(AnyOptimizer, TakesTheLearningRateOfTheMoment) {
    const std::shared_ptr<Tensor> parameter = Leaf({3});
    const std::unique_ptr<Optimizer> optimizer = GetParam()({parameter});
    EXPECT_EQ(optimizer->lr(), 0.1f);
    const std::shared_ptr<Tensor> before = Copy(*parameter);
    SetGrad(*parameter, 1.0f);
    optimizer->set_lr(0.0f);
    optimizer->Step();
    EXPECT_TRUE(SameBits(*parameter, *before));
    optimizer->set_lr(1.0f);
    optimizer->Step();
    EXPECT_FALSE(SameBits(*parameter, *before));
    EXPECT_EQ(optimizer->step(), 2);
}

TEST_P(AnyOptimizer, ClearsGradients) {
    const TensorList parameters = {Leaf({3}), Leaf({2, 2})};
    const std::unique_ptr<Optimizer> optimizer = GetParam()(parameters);
    SetGrad(*parameters[0], 1.0f);
    optimizer->ClearGrads();
    EXPECT_EQ(parameters[0]->grad(), nullptr);
    EXPECT_EQ(parameters[1]->grad(), nullptr);
}

TEST_P(AnyOptimizer, StepsWithoutParameters) {
    const std::unique_ptr<Optimizer> optimizer = GetParam()({});
    optimizer->Step();
    optimizer->ClearGrads();
    EXPECT_EQ(optimizer->step(), 1);
}

TEST_P(AnyOptimizer, AllocatesNothingInAStep) {
    const TensorList parameters = {Leaf({3}), Leaf({200, 200}, DataType::kBFloat16)};
    const std::unique_ptr<Optimizer> optimizer = GetParam()(parameters);
    for (const std::shared_ptr<Tensor>& parameter : parameters) {
        SetGrad(*parameter, 1.0f);
    }
    device_.allocator->ResetPeak();
    const int64_t before = device_.allocator->stats().peak_bytes;
    optimizer->Step();
    EXPECT_EQ(device_.allocator->stats().peak_bytes, before);
}

TEST_P(AnyOptimizer, GoesOnFromItsStepAndMoments) {
    const std::shared_ptr<Tensor> straight = Leaf({3, 4});
    const std::unique_ptr<Optimizer> first = GetParam()({straight});
    SetGrad(*straight, 0.5f);
    first->Step();
    first->Step();
    const std::shared_ptr<Tensor> resumed = Copy(*straight);
    resumed->set_requires_grad(true);
    const std::unique_ptr<Optimizer> second = GetParam()({resumed});
    second->set_step(first->step());
    ASSERT_EQ(first->moments().size(), second->moments().size());
    for (size_t i = 0; i < first->moments().size(); ++i) {
        EXPECT_EQ(first->moments()[i].name, second->moments()[i].name);
        second->moments()[i].tensors[0]->CopyFrom(*first->moments()[i].tensors[0]);
    }
    SetGrad(*resumed, 0.5f);
    first->Step();
    second->Step();
    EXPECT_TRUE(SameBits(*straight, *resumed));
}

class AnyOptimizerOfGroups : public testing::TestWithParam<std::unique_ptr<Optimizer> (*)(const Groups&)> {
 protected:
    std::shared_ptr<Tensor> Leaf(const Shape& shape) const {
        std::shared_ptr<Tensor> leaf = RandomTensor(shape, DataType::kFloat32, device_, 7);
        leaf->set_requires_grad(true);
        return leaf;
    }

    Device device_ = MakeCpuDevice();
};

TEST_P(AnyOptimizerOfGroups, UpdatesEachGroupAsAnOptimizerOfItsOwnWould) {
    const std::vector<Shape> shapes = {{3, 4}, {5}, {2, 2}, {7}, {4, 1}};
    const auto groups_of = [](const TensorList& p) {
        return Groups{{.parameters = {p[0], p[1]}, .weight_decay = 0.1f, .lr_scale = 0.5f},
                      {.parameters = {}},
                      {.parameters = {p[2]}, .weight_decay = 0.3f},
                      {.parameters = {p[3], p[4]}, .lr_scale = 0.5f}};
    };
    TensorList together, apart;
    for (const Shape& shape : shapes) {
        together.push_back(Leaf(shape));
        apart.push_back(Leaf(shape));
    }
    const std::unique_ptr<Optimizer> one = GetParam()(groups_of(together));
    EXPECT_EQ(one->parameters(), together);
    std::vector<std::unique_ptr<Optimizer>> others;
    for (ParameterGroup group : groups_of(apart)) {
        const float lr_scale = std::exchange(group.lr_scale, 1.0f);
        others.push_back(GetParam()({group}));
        others.back()->set_lr(0.1f * lr_scale);
    }
    for (int step = 0; step < 3; ++step) {
        for (size_t p = 0; p < shapes.size(); ++p) {
            const std::shared_ptr<Tensor> grad = RandomTensor(shapes[p], DataType::kFloat32, device_, 20 + p);
            together[p]->AcquireGrad().grad->CopyFrom(*grad);
            apart[p]->AcquireGrad().grad->CopyFrom(*grad);
        }
        one->Step();
        for (const auto& other : others) {
            other->Step();
        }
    }
    EXPECT_EQ(one->step(), 3);
    for (size_t p = 0; p < shapes.size(); ++p) {
        EXPECT_TRUE(SameBits(*together[p], *apart[p])) << p;
    }
}

TEST_P(AnyOptimizerOfGroups, TakesTheWeightDecayOfItsOwnAfterAResume) {
    const std::shared_ptr<Tensor> parameter = Leaf({3, 4});
    const std::unique_ptr<Optimizer> before = GetParam()({{.parameters = {parameter}, .weight_decay = 0.5f}});
    parameter->AcquireGrad();
    before->Step();
    const std::vector<float> saved = parameter->ToVector<float>();
    const std::unique_ptr<Optimizer> after = GetParam()({{.parameters = {parameter}, .weight_decay = 0.0f}});
    after->set_step(before->step());
    after->Step();  // gradients and moments are zero
    EXPECT_EQ(parameter->ToVector<float>(), saved);
}

TEST(DecayGroups, AreNeighboursThatDecayAlike) {
    const Device device = MakeCpuDevice();
    const auto make = [&](const Shape& shape) { return Tensor::Zeros(shape, DataType::kFloat32, device); };
    const TensorList p = {make({2, 3}), make({4, 1}), make({3}), make({1}), make({2, 1, 2})};
    const Groups groups = DecayGroups(p, 0.1f);
    ASSERT_EQ(groups.size(), 3u);
    EXPECT_EQ(groups[0].parameters, (TensorList{p[0], p[1]}));
    EXPECT_EQ(groups[1].parameters, (TensorList{p[2], p[3]}));
    EXPECT_EQ(groups[2].parameters, (TensorList{p[4]}));
    EXPECT_EQ(groups[0].weight_decay, 0.1f);
    EXPECT_EQ(groups[1].weight_decay, 0.0f);
    EXPECT_EQ(groups[2].weight_decay, 0.1f);
    EXPECT_EQ(groups[1].lr_scale, 1.0f);
    EXPECT_TRUE(DecayGroups({}, 0.1f).empty());
}

using AnyOptimizerDeathTest = AnyOptimizer;

TEST_P(AnyOptimizerDeathTest, DiesOnParametersThatItCannotHold) {
    const std::shared_ptr<Tensor> parameter = Leaf({3, 4});
    const std::shared_ptr<Tensor> alias = parameter->View({4, 3});
    const std::shared_ptr<Tensor> half = RandomTensor({2}, DataType::kBFloat16, device_, 1);
    EXPECT_DEATH(GetParam()({Leaf({2}), parameter, parameter}), "parameter 2 is in the list twice");
    EXPECT_DEATH(GetParam()({parameter, alias}), "parameter 1 \\[4, 3\\] shares its values");
    EXPECT_DEATH(GetParam()({parameter, nullptr}), "Must be non NULL|non-null");
    EXPECT_DEATH(GetParam()({half}), "parameter 0 is bfloat16 and has no float32 master");
}

std::string NameOf(const testing::TestParamInfo<Factory>& info) {
    constexpr std::array kNames = {"AdamW", "Sgd", "MomentumSgd"};
    return kNames[info.index];
}

const auto kFactories = testing::Values(&MakeAdamW, &MakeSgd, &MakeMomentumSgd);
INSTANTIATE_TEST_SUITE_P(Kinds, AnyOptimizer, kFactories, NameOf);
INSTANTIATE_TEST_SUITE_P(Kinds, AnyOptimizerDeathTest, kFactories, NameOf);
INSTANTIATE_TEST_SUITE_P(Kinds, AnyOptimizerOfGroups, testing::Values(&MakeAdamWOfGroups, &MakeSgdOfGroups));

}  // namespace
}  // namespace infini_train::optimizers
