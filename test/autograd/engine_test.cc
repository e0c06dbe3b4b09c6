#include "infini_train/include/autograd/engine.h"

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

#include "infini_train/include/autograd/add.h"
#include "infini_train/include/autograd/embedding.h"
#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/autograd/linear.h"
#include "infini_train/include/autograd/rms_norm.h"
#include "infini_train/include/kernels/add.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

using test::RandomTensor;
using test::SameBits;

std::shared_ptr<Tensor> Leaf(const std::vector<float>& values, const Device& device) {
    auto leaf = Tensor::FromVector(values, {static_cast<int64_t>(values.size())}, device);
    leaf->set_requires_grad(true);
    return leaf;
}

std::shared_ptr<Tensor> RandomLeaf(const Shape& shape, DataType dtype, const Device& device, uint64_t seed) {
    auto leaf = RandomTensor(shape, dtype, device, seed);
    leaf->set_requires_grad(true);
    return leaf;
}

std::vector<float> GradOf(const Tensor& leaf) {
    return leaf.grad()->ToVector<float>();
}

/// y = 2 x, which keeps x though it need not, and tells when its backward runs.
class Double : public Function {
 public:
    explicit Double(std::function<void()> on_backward = [] {}) : on_backward_(std::move(on_backward)) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        Save(inputs);
        return {kernels::add(DeviceType::kCPU, *inputs[0], *inputs[0])};
    }
    TensorList Backward(const TensorList& grad_outputs) override {
        on_backward_();
        return {kernels::add(DeviceType::kCPU, *grad_outputs[0], *grad_outputs[0])};
    }

 private:
    std::function<void()> on_backward_;
};

std::shared_ptr<Tensor> Doubled(const std::shared_ptr<Tensor>& x) {
    return std::make_shared<Double>()->Apply({x})[0];
}

/// Two copies of x; its backward notes which gradients came and passes on the first, whatever it is.
class Split : public Function {
 public:
    explicit Split(std::vector<bool>* arrived) : arrived_(arrived) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto zero = Tensor::Zeros(inputs[0]->shape(), inputs[0]->dtype(), inputs[0]->device());
        return {kernels::add(DeviceType::kCPU, *inputs[0], *zero), kernels::add(DeviceType::kCPU, *inputs[0], *zero)};
    }
    TensorList Backward(const TensorList& grad_outputs) override {
        *arrived_ = {grad_outputs[0] != nullptr, grad_outputs[1] != nullptr};
        return {grad_outputs[0]};
    }

 private:
    std::vector<bool>* arrived_;
};

TEST(Engine, GivesALeafUsedTwiceBothGradients) {
    const Device device = MakeCpuDevice();
    const auto x = Leaf({1.0f, 2.0f}, device);
    Backward({Add(x, x)}, {Tensor::FromVector<float>({1.0f, 10.0f}, {2}, device)});
    EXPECT_EQ(GradOf(*x), (std::vector<float>{2.0f, 20.0f}));
}

TEST(Engine, WaitsForAllUsesOfATensorInADiamond) {
    // y = 2 x is used by arms of different lengths: z = y + 2 (2 y) + y = 12 x. Twice in one Add as well.
    const Device device = MakeCpuDevice();
    const auto x = Leaf({3.0f}, device);
    int num_runs = 0;
    const auto y = std::make_shared<Double>([&num_runs] { ++num_runs; })->Apply({x})[0];
    const auto z = Add(Add(y, Doubled(Doubled(y))), y);
    EXPECT_EQ(z->ToVector<float>()[0], 36.0f);
    Backward({z}, {nullptr});
    EXPECT_EQ(GradOf(*x)[0], 12.0f);
    EXPECT_EQ(num_runs, 1);
}

TEST(Engine, TakesSeveralOutputsAlsoWhereOneComesFromAnother) {
    const Device device = MakeCpuDevice();
    const auto x = Leaf({1.0f}, device);
    const auto y = Doubled(x);
    const auto z = Doubled(y);
    const auto hundred = Tensor::FromVector<float>({100.0f}, {1}, device);
    // 2 * 100 through y, 4 through z, twice; and x itself.
    Backward({y, z, z, x}, {hundred, nullptr, nullptr, nullptr});
    EXPECT_EQ(GradOf(*x)[0], 209.0f);
}

TEST(Engine, GivesNullForOutputsThatNothingDependedOn) {
    const Device device = MakeCpuDevice();
    const auto x = Leaf({1.0f}, device);
    std::vector<bool> arrived;
    TensorList outputs = std::make_shared<Split>(&arrived)->Apply({x});
    Backward({outputs[0]}, {nullptr});
    EXPECT_EQ(arrived, (std::vector<bool>{true, false}));
    EXPECT_EQ(GradOf(*x)[0], 1.0f);
}

TEST(Engine, DoesNotRunWhatNoGradientReaches) {
    const Device device = MakeCpuDevice();
    const auto x = Leaf({1.0f}, device);
    bool has_run = false;
    const auto y = std::make_shared<Double>([&has_run] { has_run = true; })->Apply({x})[0];
    std::vector<bool> arrived;
    TensorList outputs = std::make_shared<Split>(&arrived)->Apply({y});
    Backward({outputs[1]}, {nullptr});
    EXPECT_EQ(arrived, (std::vector<bool>{false, true}));
    EXPECT_FALSE(has_run);
    EXPECT_EQ(x->grad(), nullptr);
}

TEST(Engine, SumsTheGradientsOfPassesUntilTheyAreCleared) {
    const Device device = MakeCpuDevice();
    const auto x = Leaf({1.0f}, device);
    Backward({Doubled(x)}, {nullptr});
    Backward({Doubled(Doubled(x))}, {nullptr});
    EXPECT_EQ(GradOf(*x)[0], 6.0f);
    x->ClearGrad();
    EXPECT_EQ(x->grad(), nullptr);
    Backward({Doubled(x)}, {nullptr});
    EXPECT_EQ(GradOf(*x)[0], 2.0f);
}

TEST(Engine, SumsBFloat16GradientsOfALeafInFloat32) {
    const Device device = MakeCpuDevice();
    const auto x = RandomLeaf({1}, DataType::kBFloat16, device, 1);
    // 256 + 1 is not a bfloat16.
    for (const float grad : {256.0f, 1.0f}) {
        Backward({Add(x, Tensor::Zeros({1}, DataType::kBFloat16, device))},
                 {Tensor::FromVector<BFloat16>({BFloat16(grad)}, {1}, device)});
    }
    EXPECT_EQ(GradOf(*x)[0], 257.0f);
}

TEST(Engine, RunsHooksOnceForEachGradientAdded) {
    const Device device = MakeCpuDevice();
    const auto x = Leaf({1.0f}, device);
    std::vector<float> seen;
    x->AddGradHook([&seen](Tensor& leaf) { seen.push_back(GradOf(leaf)[0]); });
    Backward({Add(Doubled(x), x)}, {nullptr});
    EXPECT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen.back(), 3.0f);
    Backward({Doubled(x)}, {nullptr});
    EXPECT_EQ(seen.size(), 3u);
    EXPECT_EQ(seen.back(), 5.0f);
}

TEST(Engine, RecordsNothingWithoutGradMode) {
    const Device device = MakeCpuDevice();
    const auto x = Leaf({1.0f}, device);
    {
        const NoGradGuard no_grad;
        EXPECT_FALSE(Doubled(x)->requires_grad());
        EXPECT_TRUE(x->owns_storage_alone()) << "nothing is saved";
    }
    EXPECT_TRUE(GradMode::is_enabled());
    EXPECT_TRUE(Doubled(x)->requires_grad());
    const auto constant = Tensor::Zeros({1}, DataType::kFloat32, device);
    EXPECT_FALSE(Doubled(constant)->requires_grad());
    EXPECT_TRUE(constant->owns_storage_alone());
}

TEST(Engine, FreesTheTapeAsItGoes) {
    const Device device = MakeCpuDevice();
    constexpr int64_t kBytes = 1 << 20;
    constexpr int kDepth = 8;
    const auto x = RandomLeaf({kBytes / 4}, DataType::kFloat32, device, 1);
    std::vector<int64_t> live_bytes;
    const auto step = [&] {
        live_bytes.clear();
        std::shared_ptr<Tensor> y = x;
        for (int i = 0; i < kDepth; ++i) {
            y = std::make_shared<Double>([&] {
                    live_bytes.push_back(device.allocator->stats().live_bytes);
                })->Apply({y})[0];
        }
        Backward({y}, {RandomTensor(y->shape(), DataType::kFloat32, device, 2)});
    };
    step();
    x->ClearGrad();
    const int64_t before = device.allocator->stats().live_bytes;
    EXPECT_EQ(before, 2 * kBytes) << "x and its gradient";
    step();
    EXPECT_EQ(device.allocator->stats().live_bytes, before);
    ASSERT_EQ(live_bytes.size(), size_t{kDepth});
    // The first has the last output and the caller's gradient; each next one finds the input of the one before freed,
    // and the second has a gradient of its own on top.
    EXPECT_EQ(live_bytes[0], before + (kDepth - 1 + 2) * kBytes);
    EXPECT_EQ(live_bytes[1], live_bytes[0]);
    for (size_t i = 2; i < live_bytes.size(); ++i) {
        EXPECT_EQ(live_bytes[i], live_bytes[i - 1] - kBytes) << "function " << i;
    }
}

/// Runs on a stack of 64 KiB, which 100000 frames would overflow.
void RunOnASmallStack(void* (*run)(void*)) {
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, 64 << 10), 0);
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, &attributes, run, nullptr), 0);
    ASSERT_EQ(pthread_join(thread, nullptr), 0);
    pthread_attr_destroy(&attributes);
}

constexpr int kLongChain = 100000;

std::shared_ptr<Tensor> LongChain(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& zero) {
    std::shared_ptr<Tensor> y = x;
    for (int i = 0; i < kLongChain; ++i) {
        y = Add(y, zero);
    }
    return y;
}

TEST(Engine, GoesThroughAChainOf100000FunctionsWithoutRecursion) {
    RunOnASmallStack([](void*) -> void* {
        const Device device = MakeCpuDevice();
        const auto x = Leaf({1.0f}, device);
        const auto y = LongChain(x, Tensor::Zeros({1}, DataType::kFloat32, device));
        Backward({y}, {nullptr});
        EXPECT_EQ(GradOf(*x)[0], 1.0f);
        return nullptr;
    });
}

TEST(Engine, DropsAChainOf100000FunctionsWithoutRecursion) {
    RunOnASmallStack([](void*) -> void* {
        const Device device = MakeCpuDevice();
        const auto x = Leaf({1.0f}, device);
        LongChain(x, Tensor::Zeros({1}, DataType::kFloat32, device)).reset();
        EXPECT_EQ(device.allocator->stats().live_bytes, int64_t{Allocator::kAlignment}) << "x alone";
        return nullptr;
    });
}

TEST(EngineDeathTest, RefusesASecondPassOverTheSameTape) {
    const Device device = MakeCpuDevice();
    const auto x = Leaf({1.0f}, device);
    const auto y = Doubled(x);
    const auto z = Doubled(y);
    Backward({y}, {nullptr});
    EXPECT_DEATH(Backward({y}, {nullptr}), "a second time");
    EXPECT_DEATH(Backward({z}, {nullptr}), "a second time");
}

TEST(EngineDeathTest, RefusesAGradientThatIsNotTheOutputs) {
    const Device device = MakeCpuDevice();
    const auto y = Doubled(Leaf({1.0f, 2.0f}, device));
    EXPECT_DEATH(Backward({y}, {nullptr}), "one element");
    EXPECT_DEATH(Backward({y}, {Tensor::Zeros({3}, DataType::kFloat32, device)}), "\\[3\\].*\\[2\\]");
    EXPECT_DEATH(Backward({y}, {Tensor::Zeros({2}, DataType::kBFloat16, device)}), "bfloat16.*float32");
    EXPECT_DEATH(Backward({y}, {}), "in a list");
}

/// Tokens -> embedding -> two linear layers of one weight -> norm -> the embedding's weight again as a head.
struct TiedNet {
    explicit TiedNet(DataType dtype)
        : table(RandomLeaf({11, 8}, dtype, device, 1)),
          weight(RandomLeaf({8, 8}, dtype, device, 2)),
          bias(RandomLeaf({8}, dtype, device, 3)),
          scale(RandomLeaf({8}, dtype, device, 4)) {
        for (const auto& [name, leaf] : {std::pair{'t', table}, {'w', weight}, {'b', bias}, {'s', scale}}) {
            leaf->AddGradHook([this, name = name](Tensor&) { calls.push_back(name); });
        }
    }

    void Step(WeightGradQueue* queue) {
        const auto ids = Tensor::FromVector<int32_t>({3, 1, 10, 3, 3}, {5}, device);
        auto y = Linear(Linear(Embedding(ids, table), weight, bias), weight, nullptr);
        y = Linear(RmsNorm(y, nullptr, scale, 1e-5f).y, table, nullptr);
        Backward({y}, {RandomTensor(y->shape(), y->dtype(), device, 5)}, queue);
    }
    TensorList Grads() const { return {table->grad(), weight->grad(), bias->grad(), scale->grad()}; }

    Device device = MakeCpuDevice();
    std::shared_ptr<Tensor> table;
    std::shared_ptr<Tensor> weight;
    std::shared_ptr<Tensor> bias;
    std::shared_ptr<Tensor> scale;
    std::vector<char> calls;  // whose hooks ran, in their order
};

TEST(WeightGradQueue, GivesTheBitsOfAPassWithoutOneInTheSameOrder) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        TiedNet at_once(dtype);
        at_once.Step(nullptr);
        at_once.Step(nullptr);
        EXPECT_EQ(at_once.calls, (std::vector<char>{'t', 's', 'w', 'w', 'b', 't', 't', 's', 'w', 'w', 'b', 't'}));
        TiedNet later(dtype);
        std::vector<WeightGradQueue> queues(2);
        later.Step(&queues[0]);
        later.Step(&queues[1]);
        EXPECT_EQ(later.calls, (std::vector<char>{'s', 's'})) << "only the norm's weight is not put off";
        EXPECT_EQ(later.table->grad(), nullptr);
        EXPECT_EQ(queues[0].size(), 5u);
        later.calls.clear();
        queues[0].Run();
        EXPECT_EQ(later.calls, (std::vector<char>{'t', 'w', 'w', 'b', 't'}));
        EXPECT_EQ(queues[0].size(), 0u);
        queues[1].Run();
        for (size_t i = 0; i < at_once.Grads().size(); ++i) {
            EXPECT_TRUE(SameBits(*at_once.Grads()[i], *later.Grads()[i])) << Name(dtype) << " parameter " << i;
        }
    }
}

TEST(WeightGradQueue, FreesWhatAnEntryHeldOnceItHasRun) {
    TiedNet net(DataType::kFloat32);
    net.Step(nullptr);
    const int64_t before = net.device.allocator->stats().live_bytes;
    WeightGradQueue queue;
    net.Step(&queue);
    EXPECT_GT(net.device.allocator->stats().live_bytes, before);
    queue.Run();
    EXPECT_EQ(net.device.allocator->stats().live_bytes, before);
}

/// y = 2 x, whose backward forgets the 2.
class Wrong : public Function {
 protected:
    TensorList Forward(const TensorList& inputs) override {
        return {kernels::add(DeviceType::kCPU, *inputs[0], *inputs[0])};
    }
    TensorList Backward(const TensorList& grad_outputs) override { return {grad_outputs[0]}; }
};

void CheckWrongGradient() {
    test::CheckGradients([](const TensorList& inputs) { return std::make_shared<Wrong>()->Apply(inputs)[0]; },
                         {Leaf({1.0f}, MakeCpuDevice())});
}

TEST(CheckGradients, NoticesAWrongGradient) {
    EXPECT_NONFATAL_FAILURE(CheckWrongGradient(), "input 0 element 0");
}

}  // namespace
}  // namespace infini_train::autograd
