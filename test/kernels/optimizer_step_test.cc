#include "infini_train/include/kernels/optimizer_step.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::NumThreadsGuard;
using test::RandomTensor;
using test::SameBits;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
// Odd sizes, one more than a block of the CPU kernel, and enough in all for several threads.
const std::vector<int64_t> kSizes = {0, 1, 7, 8193, 3, 40000, 100};

/// What one parameter of a step is made of, with the tensors that OptimizerParameter points to.
struct Parameter {
    std::shared_ptr<Tensor> master = nullptr;
    std::shared_ptr<Tensor> value = nullptr;
    std::shared_ptr<Tensor> grad = nullptr;
    std::shared_ptr<Tensor> moment1 = nullptr;
    std::shared_ptr<Tensor> moment2 = nullptr;
    float weight_decay = 0.0f;

    OptimizerParameter Get() const {
        return {.master = master.get(),
                .value = value.get(),
                .grad = grad.get(),
                .moment1 = moment1.get(),
                .moment2 = moment2.get(),
                .weight_decay = weight_decay};
    }
};

class OptimizerStep : public testing::Test {
 protected:
    std::shared_ptr<Tensor> Scale(float scale) const {
        return Tensor::FromVector(std::vector<float>{scale}, {1}, device_);
    }

    /// Every second parameter is kept in bfloat16 and decays.
    std::vector<Parameter> MakeParameters(bool has_moment1, bool has_moment2) const {
        std::vector<Parameter> parameters;
        for (size_t i = 0; i < kSizes.size(); ++i) {
            const Shape shape = {kSizes[i]};
            const bool is_odd = i % 2 == 1;
            parameters.push_back({.master = RandomTensor(shape, DataType::kFloat32, device_, i),
                                  .value = is_odd ? RandomTensor(shape, DataType::kBFloat16, device_, i) : nullptr,
                                  .grad = RandomTensor(shape, DataType::kFloat32, device_, i + 100),
                                  .moment1 = has_moment1 ? Tensor::Zeros(shape, DataType::kFloat32, device_) : nullptr,
                                  .moment2 = has_moment2 ? Tensor::Zeros(shape, DataType::kFloat32, device_) : nullptr,
                                  .weight_decay = is_odd ? 0.1f : 0.0f});
        }
        return parameters;
    }

    static std::vector<OptimizerParameter> Get(const std::vector<Parameter>& parameters) {
        std::vector<OptimizerParameter> list;
        for (const Parameter& parameter : parameters) {
            list.push_back(parameter.Get());
        }
        return list;
    }

    Device device_ = MakeCpuDevice();
};

void ExpectClose(const Tensor& got, const std::vector<double>& wanted, const char* what) {
    const std::vector<double> values = ToDoubles(got);
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i) {
        // Values are below 2; each of a few steps rounds a few times.
        ASSERT_NEAR(values[i], wanted[i], 2e-6) << what << ", element " << i << " of " << values.size();
    }
}

void ExpectRoundedCopy(const Parameter& parameter) {
    if (parameter.value != nullptr) {
        const std::vector<float> master = parameter.master->ToVector<float>();
        const std::vector<BFloat16> value = parameter.value->ToVector<BFloat16>();
        for (size_t i = 0; i < master.size(); ++i) {
            ASSERT_EQ(value[i].bits, BFloat16(master[i]).bits) << i;
        }
    }
}

bool SameState(const std::vector<Parameter>& a, const std::vector<Parameter>& b) {
    const auto same = [](const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& y) {
        return (x == nullptr && y == nullptr) || SameBits(*x, *y);
    };
    bool all = a.size() == b.size();
    for (size_t i = 0; all && i < a.size(); ++i) {
        all = same(a[i].master, b[i].master) && same(a[i].value, b[i].value) && same(a[i].moment1, b[i].moment1) &&
              same(a[i].moment2, b[i].moment2);
    }
    return all;
}

TEST_F(OptimizerStep, AdamWMovesByTheLearningRateFirst) {
    // m / (1 - beta1) = g and v / (1 - beta2) = g^2: the first step is lr, in the direction of the sign.
    Parameter parameter = {.master = Tensor::FromVector(std::vector<float>{1.0f, 2.0f, 3.0f}, {3}, device_),
                           .grad = Tensor::FromVector(std::vector<float>{5.0f, -0.25f, 0.0f}, {3}, device_),
                           .moment1 = Tensor::Zeros({3}, DataType::kFloat32, device_),
                           .moment2 = Tensor::Zeros({3}, DataType::kFloat32, device_)};
    const std::vector<OptimizerParameter> list = {parameter.Get()};
    adamw_step(kCpu, list, *Scale(2.0f), {.lr = 0.5f, .step = 1});
    ExpectClose(*parameter.master, {0.5, 2.5, 3.0}, "master");
    ExpectClose(*parameter.moment1, {1.0, -0.05, 0.0}, "m");
    ExpectClose(*parameter.moment2, {5.0, 0.0125, 0.0}, "v");
}

TEST_F(OptimizerStep, AdamWDecaysWithoutAGradient) {
    Parameter parameter = {.master = Tensor::FromVector(std::vector<float>{1.0f, -2.0f}, {2}, device_),
                           .grad = Tensor::Zeros({2}, DataType::kFloat32, device_),
                           .moment1 = Tensor::Zeros({2}, DataType::kFloat32, device_),
                           .moment2 = Tensor::Zeros({2}, DataType::kFloat32, device_),
                           .weight_decay = 0.1f};
    const std::vector<OptimizerParameter> list = {parameter.Get()};
    adamw_step(kCpu, list, *Scale(1.0f), {.lr = 0.1f, .step = 1});
    ExpectClose(*parameter.master, {0.99, -1.98}, "master");
}

TEST_F(OptimizerStep, AdamWFollowsTheFormulaInDouble) {
    const std::vector<Parameter> parameters = MakeParameters(true, true);
    const std::vector<OptimizerParameter> list = Get(parameters);
    const double lr = 0.01, beta1 = 0.8, beta2 = 0.9, eps = 1e-6, scale = 0.5;
    std::vector<std::vector<double>> x, m, v;
    for (const Parameter& parameter : parameters) {
        x.push_back(ToDoubles(*parameter.master));
        m.push_back(ToDoubles(*parameter.moment1));
        v.push_back(ToDoubles(*parameter.moment2));
    }
    for (int step = 1; step <= 5; ++step) {
        for (size_t p = 0; p < parameters.size(); ++p) {
            std::shared_ptr<Tensor> grad = RandomTensor(parameters[p].grad->shape(), DataType::kFloat32, device_,
                                                        1000 * static_cast<uint64_t>(step) + p);
            parameters[p].grad->CopyFrom(*grad);
            const std::vector<double> g = ToDoubles(*grad);
            for (size_t i = 0; i < g.size(); ++i) {
                m[p][i] = beta1 * m[p][i] + (1 - beta1) * g[i] * scale;
                v[p][i] = beta2 * v[p][i] + (1 - beta2) * std::pow(g[i] * scale, 2);
                const double direction =
                    m[p][i] / (1 - std::pow(beta1, step)) / (std::sqrt(v[p][i] / (1 - std::pow(beta2, step))) + eps);
                x[p][i] -= lr * (direction + static_cast<double>(parameters[p].weight_decay) * x[p][i]);
            }
        }
        adamw_step(kCpu, list, *Scale(0.5f), {.lr = 0.01f, .beta1 = 0.8f, .beta2 = 0.9f, .eps = 1e-6f, .step = step});
    }
    for (size_t p = 0; p < parameters.size(); ++p) {
        ASSERT_NO_FATAL_FAILURE(ExpectClose(*parameters[p].master, x[p], "master"));
        ASSERT_NO_FATAL_FAILURE(ExpectClose(*parameters[p].moment1, m[p], "m"));
        ASSERT_NO_FATAL_FAILURE(ExpectClose(*parameters[p].moment2, v[p], "v"));
        ASSERT_NO_FATAL_FAILURE(ExpectRoundedCopy(parameters[p]));
    }
}

TEST_F(OptimizerStep, SgdFollowsTheFormulaInDouble) {
    for (const float momentum : {0.0f, 0.75f}) {
        const std::vector<Parameter> parameters = MakeParameters(momentum != 0.0f, false);
        const std::vector<OptimizerParameter> list = Get(parameters);
        std::vector<std::vector<double>> x, m;
        for (const Parameter& parameter : parameters) {
            x.push_back(ToDoubles(*parameter.master));
            m.emplace_back(x.back().size());
        }
        for (int step = 1; step <= 4; ++step) {
            for (size_t p = 0; p < parameters.size(); ++p) {
                const std::vector<double> g = ToDoubles(*parameters[p].grad);
                for (size_t i = 0; i < g.size(); ++i) {
                    const double decay = static_cast<double>(parameters[p].weight_decay) * x[p][i];
                    m[p][i] = static_cast<double>(momentum) * m[p][i] + g[i] * 0.5 + decay;
                    x[p][i] -= 0.125 * m[p][i];
                }
            }
            sgd_step(kCpu, list, *Scale(0.5f), {.lr = 0.125f, .momentum = momentum});
        }
        for (size_t p = 0; p < parameters.size(); ++p) {
            ASSERT_NO_FATAL_FAILURE(ExpectClose(*parameters[p].master, x[p], "master"));
            ASSERT_NO_FATAL_FAILURE(ExpectRoundedCopy(parameters[p]));
            if (momentum != 0.0f) {
                ASSERT_NO_FATAL_FAILURE(ExpectClose(*parameters[p].moment1, m[p], "momentum"));
            }
        }
    }
}

TEST_F(OptimizerStep, ChangesNothingWhenTheScaleIsNotFinite) {
    const std::vector<Parameter> parameters = MakeParameters(true, true);
    const std::vector<Parameter> untouched = MakeParameters(true, true);
    const std::vector<OptimizerParameter> list = Get(parameters);
    for (const float scale : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()}) {
        adamw_step(kCpu, list, *Scale(scale), {.lr = 0.1f, .step = 1});
        sgd_step(kCpu, list, *Scale(scale), {.lr = 0.1f});
        sgd_step(kCpu, list, *Scale(scale), {.lr = 0.1f, .momentum = 0.9f});
        EXPECT_TRUE(SameState(parameters, untouched)) << scale;
    }
}

TEST_F(OptimizerStep, KeepsANanToItsElement) {
    const std::vector<Parameter> parameters = MakeParameters(true, true);
    parameters[3].grad->data<float>()[5000] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<OptimizerParameter> list = Get(parameters);
    adamw_step(kCpu, list, *Scale(1.0f), {.lr = 0.1f, .step = 1});
    for (size_t p = 0; p < parameters.size(); ++p) {
        const std::vector<double> values = ToDoubles(*parameters[p].master);
        for (size_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(std::isnan(values[i]), p == 3 && i == 5000) << p << " " << i;
        }
    }
}

TEST_F(OptimizerStep, GivesTheSameBitsWithAnyNumberOfThreads) {
    const auto run = [&](int num_threads) {
        const NumThreadsGuard guard(num_threads);
        std::vector<Parameter> parameters = MakeParameters(true, true);
        const std::vector<OptimizerParameter> list = Get(parameters);
        for (int step = 1; step <= 3; ++step) {
            adamw_step(kCpu, list, *Scale(0.3f), {.lr = 0.01f, .step = step});
            sgd_step(kCpu, list, *Scale(0.3f), {.lr = 0.01f, .momentum = 0.9f});
            sgd_step(kCpu, list, *Scale(0.3f), {.lr = 0.01f});
        }
        return parameters;
    };
    const std::vector<Parameter> one = run(1);
    EXPECT_FALSE(SameState(one, MakeParameters(true, true)));
    for (const int num_threads : {2, 3}) {
        EXPECT_TRUE(SameState(one, run(num_threads))) << num_threads;
    }
}

TEST_F(OptimizerStep, DoesNothingWithoutParameters) {
    adamw_step(kCpu, {}, *Scale(1.0f), {.lr = 0.1f});
    sgd_step(kCpu, {}, *Scale(1.0f), {.lr = 0.1f});
}

using OptimizerStepDeathTest = OptimizerStep;

TEST_F(OptimizerStepDeathTest, NamesTheTensorThatDoesNotFit) {
    const std::vector<Parameter> parameters = MakeParameters(true, true);
    const std::shared_ptr<Tensor> other = Tensor::Zeros({4}, DataType::kFloat32, device_);
    const auto adamw = [&](OptimizerParameter parameter) {
        const std::vector<OptimizerParameter> list = {parameter};
        adamw_step(kCpu, list, *Scale(1.0f), {.lr = 0.1f});
    };
    OptimizerParameter parameter = parameters[2].Get();
    parameter.grad = other.get();
    EXPECT_DEATH(adamw(parameter), "adamw_step: gradient \\[4\\].*parameter \\[7\\]");
    parameter = parameters[2].Get();
    parameter.moment2 = nullptr;
    EXPECT_DEATH(adamw(parameter), "adamw_step: no second moment");
    parameter = parameters[2].Get();
    parameter.value = parameters[2].master.get();
    EXPECT_DEATH(adamw(parameter), "value \\[7\\] float32.*wanted bfloat16");
    EXPECT_DEATH(adamw_step(kCpu, {}, *other, {}), "grad_scale \\[4\\]");
    EXPECT_DEATH(adamw_step(kCpu, {}, *Scale(1.0f), {.step = 0}), "steps count from 1");
}

}  // namespace
}  // namespace infini_train::kernels
