#include "infini_train/include/kernels/optimizer_step.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/cuda_compare.h"

namespace infini_train::kernels {
namespace {

using test::CopyTo;
using test::ExpectClose;
using test::RandomTensor;
using test::SameBytes;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;
constexpr int64_t kChunk = 4096;  // elements that a block of the kernel updates
// No element, one, no multiple of a pack, one more than a block, several blocks, empty again.
const std::vector<int64_t> kSizes = {0, 1, 7, kChunk + 1, 3, 10 * kChunk, 0, kChunk - 1, 3 * kChunk + 5, 100, 2};
// Both sides round after the same operations, with the same products fused where the CPU has fused ones; without them a
// step differs by a unit or two of the terms, which are below 2 (the absolute part), or of a moment that is their sum.
constexpr double kTwoUnits = 2.4e-7;

/// What a parameter of a step is made of, with the tensors that OptimizerParameter points to.
struct Parameter {
    std::shared_ptr<Tensor> master = nullptr;
    std::shared_ptr<Tensor> value = nullptr;
    std::shared_ptr<Tensor> grad = nullptr;
    std::shared_ptr<Tensor> moment1 = nullptr;
    std::shared_ptr<Tensor> moment2 = nullptr;
    float weight_decay = 0.0f;
};
using ParameterList = std::vector<Parameter>;

std::vector<OptimizerParameter> Get(const ParameterList& parameters) {
    std::vector<OptimizerParameter> list;
    for (const Parameter& parameter : parameters) {
        list.push_back({.master = parameter.master.get(),
                        .value = parameter.value.get(),
                        .grad = parameter.grad.get(),
                        .moment1 = parameter.moment1.get(),
                        .moment2 = parameter.moment2.get(),
                        .weight_decay = parameter.weight_decay});
    }
    return list;
}

/// The parameters with each of their tensors changed.
template <typename Change>
ParameterList ForEachTensor(const ParameterList& parameters, const Change& change) {
    const auto or_null = [&](const std::shared_ptr<Tensor>& x) { return x == nullptr ? nullptr : change(*x); };
    ParameterList changed;
    for (const Parameter& parameter : parameters) {
        changed.push_back({.master = change(*parameter.master),
                           .value = or_null(parameter.value),
                           .grad = change(*parameter.grad),
                           .moment1 = or_null(parameter.moment1),
                           .moment2 = or_null(parameter.moment2),
                           .weight_decay = parameter.weight_decay});
    }
    return changed;
}

/// Second moments as those of gradients about as large as ours: a division by a tiny root would blow roundings up.
std::shared_ptr<Tensor> SecondMoments(const Shape& shape, const Device& device, uint64_t seed) {
    std::vector<float> values = RandomTensor(shape, DataType::kFloat32, device, seed)->ToVector<float>();
    for (float& value : values) {
        value = 0.01f + 0.1f * std::abs(value);
    }
    return Tensor::FromVector(values, shape, device);
}

/// Every second parameter is kept in bfloat16 and decays.
ParameterList MakeParameters(const std::vector<int64_t>& sizes, bool has_moment1, bool has_moment2,
                             const Device& device) {
    ParameterList parameters;
    for (size_t i = 0; i < sizes.size(); ++i) {
        const Shape shape = {sizes[i]};
        const bool is_odd = i % 2 == 1;
        parameters.push_back(
            {.master = RandomTensor(shape, DataType::kFloat32, device, i),
             .value = is_odd ? RandomTensor(shape, DataType::kBFloat16, device, i + 1) : nullptr,
             .grad = RandomTensor(shape, DataType::kFloat32, device, i + 1000),
             .moment1 = has_moment1 ? RandomTensor(shape, DataType::kFloat32, device, i + 2000, 0.1f) : nullptr,
             .moment2 = has_moment2 ? SecondMoments(shape, device, i + 3000) : nullptr,
             .weight_decay = is_odd ? 0.1f : 0.0f});
    }
    return parameters;
}

void ExpectSameParameters(const ParameterList& got, const ParameterList& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
        const auto same = [](const std::shared_ptr<Tensor>& a, const std::shared_ptr<Tensor>& b) {
            return a == nullptr ? b == nullptr : b != nullptr && SameBytes(*a, *b);
        };
        EXPECT_TRUE(same(got[i].master, wanted[i].master)) << i;
        EXPECT_TRUE(same(got[i].value, wanted[i].value)) << i;
        EXPECT_TRUE(same(got[i].grad, wanted[i].grad)) << i;
        EXPECT_TRUE(same(got[i].moment1, wanted[i].moment1)) << i;
        EXPECT_TRUE(same(got[i].moment2, wanted[i].moment2)) << i;
    }
}

void ExpectCloseParameters(const ParameterList& got, const ParameterList& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE("parameter " + std::to_string(i));
        ExpectClose(*got[i].master, *wanted[i].master, kTwoUnits, kTwoUnits);
        if (got[i].moment1 != nullptr) {
            ExpectClose(*got[i].moment1, *wanted[i].moment1, kTwoUnits, kTwoUnits);
        }
        if (got[i].moment2 != nullptr) {
            ExpectClose(*got[i].moment2, *wanted[i].moment2, kTwoUnits, 0.0);
        }
        if (got[i].value != nullptr) {
            // The copy is the rounded master of the same device, to the bit.
            const std::vector<float> master = got[i].master->ToVector<float>();
            const std::vector<BFloat16> value = got[i].value->ToVector<BFloat16>();
            for (size_t k = 0; k < master.size(); ++k) {
                ASSERT_EQ(value[k].bits, BFloat16(master[k]).bits) << k;
            }
        }
    }
}

class CudaOptimizerStep : public testing::Test {
 protected:
    void SetUp() override {
        INFINI_SKIP_WITHOUT_CUDA();
        cuda_ = MakeCudaDevice(0);
    }

    static std::shared_ptr<Tensor> Scale(const Device& device, float scale) {
        return Tensor::FromVector(std::vector<float>{scale}, {1}, device);
    }

    ParameterList ToCuda(const ParameterList& parameters) const {
        return ForEachTensor(parameters, [&](const Tensor& x) { return CopyTo(x, cuda_); });
    }

    /// Copies at addresses that are no multiples of 16, nor of a pack of bfloat16.
    ParameterList ToUnaligned(const ParameterList& parameters) const {
        return ForEachTensor(parameters, [&](const Tensor& x) {
            const auto room = Tensor::Zeros({x.num_elements() + 1}, x.dtype(), cuda_);
            std::shared_ptr<Tensor> moved = room->Slice(1, room->dim(0));
            moved->CopyFrom(x);
            return moved;
        });
    }

    /// One a kernel: they differ in the moments that they read and write.
    enum class Kind { kAdamW, kSgd, kSgdMomentum };
    static constexpr Kind kKinds[] = {Kind::kAdamW, Kind::kSgd, Kind::kSgdMomentum};

    ParameterList Make(Kind kind, const std::vector<int64_t>& sizes = kSizes) const {
        return MakeParameters(sizes, kind != Kind::kSgd, kind == Kind::kAdamW, cpu_);
    }

    static void Step(Kind kind, DeviceType type, const ParameterList& parameters, const Tensor& scale,
                     int64_t step = 1) {
        const std::vector<OptimizerParameter> list = Get(parameters);
        switch (kind) {
            case Kind::kAdamW:
                adamw_step(type, list, scale, {.lr = 0.01f, .beta1 = 0.8f, .beta2 = 0.9f, .eps = 1e-6f, .step = step});
                break;
            case Kind::kSgd:
                sgd_step(type, list, scale, {.lr = 0.125f});
                break;
            case Kind::kSgdMomentum:
                sgd_step(type, list, scale, {.lr = 0.125f, .momentum = 0.75f});
                break;
        }
    }

    Device cpu_ = MakeCpuDevice();
    Device cuda_;
};

TEST_F(CudaOptimizerStep, UpdatesEveryElementAsTheCpuDoes) {
    std::vector<int64_t> sizes = kSizes;
    sizes.push_back(768 * 3072);  // kept in bfloat16, as those at the odd places
    for (const Kind kind : kKinds) {
        SCOPED_TRACE(static_cast<int>(kind));
        const ParameterList wanted = Make(kind, sizes);
        const ParameterList got = ToCuda(wanted);
        Step(kind, kCpu, wanted, *Scale(cpu_, 0.3f));
        Step(kind, kCuda, got, *Scale(cuda_, 0.3f));
        ExpectCloseParameters(got, wanted);
    }
}

TEST_F(CudaOptimizerStep, CountsTheSteps) {
    const ParameterList wanted = Make(Kind::kAdamW, {kChunk + 1, 7});
    const ParameterList got = ToCuda(wanted);
    Step(Kind::kAdamW, kCpu, wanted, *Scale(cpu_, 0.3f), 100);
    Step(Kind::kAdamW, kCuda, got, *Scale(cuda_, 0.3f), 100);
    ExpectCloseParameters(got, wanted);
}

TEST_F(CudaOptimizerStep, UpdatesMoreParametersThanOneLaunchTakes) {
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < 1300; ++i) {
        sizes.push_back(i % 6);
    }
    sizes[600] = 2 * kChunk + 3;
    const ParameterList wanted = Make(Kind::kAdamW, sizes);
    const ParameterList got = ToCuda(wanted);
    Step(Kind::kAdamW, kCpu, wanted, *Scale(cpu_, 1.0f));
    Step(Kind::kAdamW, kCuda, got, *Scale(cuda_, 1.0f));
    ExpectCloseParameters(got, wanted);
}

TEST_F(CudaOptimizerStep, GivesTheSameBytesTwiceAndAtAnyAddress) {
    for (const Kind kind : kKinds) {
        SCOPED_TRACE(static_cast<int>(kind));
        const ParameterList start = Make(kind);
        const ParameterList first = ToCuda(start);
        const ParameterList second = ToCuda(start);
        const ParameterList unaligned = ToUnaligned(start);
        for (int64_t step = 1; step <= 3; ++step) {
            for (const ParameterList* parameters : {&first, &second, &unaligned}) {
                Step(kind, kCuda, *parameters, *Scale(cuda_, 0.3f), step);
            }
        }
        ExpectSameParameters(second, first);
        ExpectSameParameters(unaligned, first);
    }
}

TEST_F(CudaOptimizerStep, ChangesNothingBesideAParameter) {
    const auto room = Tensor::Zeros({kChunk + 9}, DataType::kFloat32, cuda_);
    ParameterList parameters = ToCuda(Make(Kind::kSgd, {kChunk + 1}));
    parameters[0].master = room->Slice(4, kChunk + 5);
    Step(Kind::kSgd, kCuda, parameters, *Scale(cuda_, 1.0f));
    const std::vector<double> values = ToDoubles(*room);
    for (size_t i = 0; i < values.size(); ++i) {
        // A gradient of exactly 0 is not among the random ones.
        ASSERT_EQ(values[i] != 0.0, 4 <= i && i < kChunk + 5) << i;
    }
}

TEST_F(CudaOptimizerStep, ChangesNothingWhenTheScaleIsNotFinite) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const Kind kind : kKinds) {
        const ParameterList start = Make(kind);
        const ParameterList parameters = ToCuda(start);
        for (const float scale : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
            Step(kind, kCuda, parameters, *Scale(cuda_, scale));
        }
        ExpectSameParameters(parameters, start);
    }
}

TEST_F(CudaOptimizerStep, KeepsANanToItsElement) {
    const ParameterList start = Make(Kind::kAdamW);
    start[3].grad->data<float>()[kChunk] = std::numeric_limits<float>::quiet_NaN();
    const ParameterList parameters = ToCuda(start);
    Step(Kind::kAdamW, kCuda, parameters, *Scale(cuda_, 1.0f));
    for (size_t p = 0; p < parameters.size(); ++p) {
        const std::vector<double> values = ToDoubles(*parameters[p].master);
        for (size_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(std::isnan(values[i]), p == 3 && i == kChunk) << p << " " << i;
        }
    }
    EXPECT_TRUE(std::isnan(ToDoubles(*parameters[3].value)[kChunk]));
}

TEST_F(CudaOptimizerStep, DoesNothingWithoutParameters) {
    for (const Kind kind : kKinds) {
        Step(kind, kCuda, {}, *Scale(cuda_, 1.0f));
        Step(kind, kCuda, ToCuda(Make(kind, {0, 0})), *Scale(cuda_, 1.0f));
    }
    StreamOf(cuda_)->Synchronize();
}

using CudaOptimizerStepDeathTest = CudaOptimizerStep;

// A forked child cannot use the GPU, so what these calls need is made before them.
TEST_F(CudaOptimizerStepDeathTest, NamesTheTensorThatDoesNotFit) {
    const ParameterList parameters = ToCuda(Make(Kind::kAdamW, {7}));
    const std::shared_ptr<Tensor> scale = Scale(cuda_, 1.0f);
    const std::shared_ptr<Tensor> elsewhere = CopyTo(*parameters[0].moment1, cpu_);
    const auto adamw = [&](const Parameter& parameter) { Step(Kind::kAdamW, kCuda, {parameter}, *scale); };
    Parameter parameter = parameters[0];
    parameter.grad = scale;
    EXPECT_DEATH(adamw(parameter), "adamw_step: gradient \\[1\\].*parameter \\[7\\]");
    parameter = parameters[0];
    parameter.moment2 = nullptr;
    EXPECT_DEATH(adamw(parameter), "adamw_step: no second moment");
    parameter = parameters[0];
    parameter.value = parameter.master;
    EXPECT_DEATH(adamw(parameter), "value \\[7\\] float32.*wanted bfloat16");
    parameter = parameters[0];
    parameter.moment1 = elsewhere;
    EXPECT_DEATH(adamw(parameter), "first moment \\[7\\] float32 on cpu");
    EXPECT_DEATH(Step(Kind::kAdamW, kCuda, {}, *scale, 0), "steps count from 1");
}

}  // namespace
}  // namespace infini_train::kernels
