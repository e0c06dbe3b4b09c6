#include "infini_train/include/optimizer/optimizer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/optimizer/adamw.h"
#include "infini_train/include/optimizer/sgd.h"
#include "test/support/random_tensor.h"

namespace infini_train::optimizers {
namespace {

using test::RandomTensor;
using test::SameBits;

std::unique_ptr<Optimizer> MakeAdamW(const TensorList& parameters) {
    return std::make_unique<AdamW>(parameters, AdamW::Options{.lr = 0.1f, .weight_decay = 0.1f});
}
std::unique_ptr<Optimizer> MakeSgd(const TensorList& parameters) {
    return std::make_unique<Sgd>(parameters, Sgd::Options{.lr = 0.1f, .weight_decay = 0.1f});
}
std::unique_ptr<Optimizer> MakeMomentumSgd(const TensorList& parameters) {
    return std::make_unique<Sgd>(parameters, Sgd::Options{.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f});
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

}  // namespace
}  // namespace infini_train::optimizers
