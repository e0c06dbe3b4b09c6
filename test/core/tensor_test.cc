#include "infini_train/include/core/tensor.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/core/caching_allocator.h"

namespace infini_train {
namespace {

std::shared_ptr<Tensor> CountUp(const Shape& shape, const Device& device) {
    std::vector<float> values(static_cast<size_t>(NumElements(shape)));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i);
    }
    return Tensor::FromVector(values, shape, device);
}

TEST(Shape, CountsItsElements) {
    EXPECT_EQ(NumElements({}), 1);
    EXPECT_EQ(NumElements({3, 0, 2}), 0);
    EXPECT_EQ(NumElements({3, 4, 2}), 24);
    EXPECT_EQ(ToString(Shape{3, 4}), "[3, 4]");
    EXPECT_EQ(ToString(Shape{}), "[]");
}

TEST(ShapeDeathTest, RefusesNegativeExtentsAndOverflow) {
    EXPECT_DEATH(NumElements({3, -1}), "\\[3, -1\\]");
    EXPECT_DEATH(NumElements({int64_t{1} << 40, int64_t{1} << 40}), "shape");
}

TEST(Tensor, HoldsTheValuesItWasGiven) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::FromVector<int64_t>({5, -6, 7, 8, 9, 10}, {1, 3, 2}, device);
    EXPECT_EQ(x->ToVector<int64_t>(), (std::vector<int64_t>{5, -6, 7, 8, 9, 10}));
    EXPECT_EQ(x->dtype(), DataType::kInt64);
    EXPECT_EQ(x->num_dims(), 3);
    EXPECT_EQ(x->dim(1), 3);
    EXPECT_EQ(x->dim(-1), 2);
    EXPECT_EQ(x->num_elements(), 6);
    EXPECT_EQ(x->num_rows(), 3);
    EXPECT_EQ(x->size_bytes(), 48u);
    EXPECT_EQ(Tensor::Zeros({2}, DataType::kBFloat16, device)->ToVector<BFloat16>()[1].bits, 0);
}

TEST(Tensor, OfNoElementsNeedsNoMemory) {
    const Device device = MakeCpuDevice();
    const auto x = Tensor::Zeros({0, 4}, DataType::kFloat32, device);
    EXPECT_EQ(x->num_rows(), 0);
    EXPECT_EQ(x->Slice(0, 0)->num_elements(), 0);
    EXPECT_TRUE(x->ToVector<float>().empty());
    x->CopyFrom(*Tensor::Zeros({0, 4}, DataType::kFloat32, device));
    EXPECT_EQ(device.allocator->stats().num_system_requests, 0);
}

TEST(Tensor, TooLargeForAnyMachineIsAnError) {
    const Device device = MakeCpuDevice();
    EXPECT_THROW(Tensor::Empty({int64_t{1} << 60}, DataType::kFloat32, device), Error);
    // As many bytes as a multiple of 2^64: must not look like none.
    EXPECT_THROW(Tensor::Empty({int64_t{1} << 62}, DataType::kFloat32, device), Error);
}

TEST(Tensor, ViewsShareTheStorage) {
    const auto x = CountUp({3, 2}, MakeCpuDevice());
    EXPECT_TRUE(x->owns_storage_alone());
    const auto view = x->View({2, 3});
    const auto rows = x->Slice(1, 3);
    EXPECT_FALSE(x->owns_storage_alone());
    EXPECT_EQ(rows->shape(), (Shape{2, 2}));
    EXPECT_EQ(rows->ToVector<float>(), (std::vector<float>{2.0f, 3.0f, 4.0f, 5.0f}));
    rows->data<float>()[0] = -1.0f;
    EXPECT_EQ(x->data<float>()[2], -1.0f);
    EXPECT_EQ(view->data<float>()[2], -1.0f);
}

TEST(Tensor, KeepsItsStorageWhileAViewLives) {
    const Device device = MakeCpuDevice();
    auto x = CountUp({3, 2}, device);
    auto rows = x->Slice(2, 3);
    x.reset();
    EXPECT_EQ(rows->ToVector<float>(), (std::vector<float>{4.0f, 5.0f}));
    EXPECT_TRUE(rows->owns_storage_alone());
    EXPECT_GT(device.allocator->stats().live_bytes, 0);
    rows.reset();
    EXPECT_EQ(device.allocator->stats().live_bytes, 0);
}

TEST(Tensor, CopiesAndClearsValues) {
    const Device device = MakeCpuDevice();
    const auto x = CountUp({3}, device);
    const auto y = Tensor::Empty({3}, DataType::kFloat32, device);
    y->CopyFrom(*x);
    x->SetZero();
    EXPECT_EQ(y->ToVector<float>(), (std::vector<float>{0.0f, 1.0f, 2.0f}));
    EXPECT_EQ(x->ToVector<float>(), (std::vector<float>{0.0f, 0.0f, 0.0f}));
}

int64_t LiveBytes(const Device& device) {
    return device.allocator->stats().live_bytes;
}

TEST(Tensor, CountsForTheRankThatItIsHandedOverTo) {
    const Device from = MakeCpuDevice();
    const Device to = MakeCpuDevice();
    auto sent = CountUp({5, 13}, from);  // 260 bytes: two blocks of 256
    sent->set_requires_grad(true);
    const void* data = sent->raw_data();
    auto received = sent->HandOver(to);
    EXPECT_EQ(LiveBytes(from), 0);
    EXPECT_EQ(LiveBytes(to), 512);
    EXPECT_EQ(received->raw_data(), data);
    EXPECT_EQ(received->shape(), sent->shape());
    EXPECT_EQ(received->dtype(), sent->dtype());
    EXPECT_EQ(received->device().allocator, to.allocator);
    EXPECT_FALSE(received->requires_grad());
    sent.reset();
    EXPECT_EQ(LiveBytes(to), 512);
    received.reset();
    EXPECT_EQ(LiveBytes(to), 0);
    EXPECT_EQ(LiveBytes(from), 0);
    EXPECT_EQ(from.allocator->stats().peak_bytes, 512);
    EXPECT_EQ(to.allocator->stats().peak_bytes, 512);
    // The block is back where it came from.
    EXPECT_EQ(CountUp({5, 13}, from)->raw_data(), data);
    EXPECT_EQ(to.allocator->stats().num_system_requests, 0);
}

TEST(Tensor, IsHandedOnAndBack) {
    const Device a = MakeCpuDevice();
    const Device b = MakeCpuDevice();
    const Device c = MakeCpuDevice();
    auto x = CountUp({2}, a);
    EXPECT_EQ(x->HandOver(a)->device().allocator, a.allocator);
    EXPECT_EQ(LiveBytes(a), 256);
    x = x->HandOver(b);
    x = x->HandOver(b);
    EXPECT_EQ(LiveBytes(b), 256);
    x = x->HandOver(c);
    EXPECT_EQ(LiveBytes(b), 0);
    EXPECT_EQ(LiveBytes(c), 256);
    x = x->HandOver(a);
    EXPECT_EQ(LiveBytes(c), 0);
    EXPECT_EQ(LiveBytes(a), 256);
    x = x->HandOver(c);
    EXPECT_EQ(LiveBytes(a), 0);
    x.reset();
    for (const Device& device : {a, b, c}) {
        EXPECT_EQ(LiveBytes(device), 0);
        EXPECT_EQ(device.allocator->stats().peak_bytes, 256);
    }
}

TEST(Tensor, IsHandedOverWithItsViews) {
    const Device from = MakeCpuDevice();
    const Device to = MakeCpuDevice();
    auto whole = CountUp({8, 64}, from);
    auto rows = whole->Slice(2, 3)->HandOver(to);
    EXPECT_EQ(rows->data<float>()[0], 128.0f);
    EXPECT_EQ(LiveBytes(from), 0);
    EXPECT_EQ(LiveBytes(to), 2048) << "the whole storage";
    rows.reset();
    EXPECT_EQ(LiveBytes(to), 2048);
    whole.reset();
    EXPECT_EQ(LiveBytes(to), 0);
    const auto nothing = Tensor::Zeros({0, 3}, DataType::kFloat32, from)->HandOver(to);
    EXPECT_EQ(nothing->shape(), (Shape{0, 3}));
}

TEST(Tensor, KeepsBothAllocatorsAlive) {
    auto from = MakeCpuDevice();
    auto to = MakeCpuDevice();
    const std::weak_ptr<Allocator> source = from.allocator;
    const std::weak_ptr<Allocator> account = to.allocator;
    auto sent = CountUp({2}, from);
    auto received = sent->HandOver(to);
    from = {};
    to = {};
    received.reset();
    EXPECT_FALSE(account.expired());
    EXPECT_EQ(account.lock()->stats().live_bytes, 256);
    sent.reset();
    EXPECT_TRUE(source.expired());
    EXPECT_TRUE(account.expired());
}

TEST(Tensor, IsHandedOverByAnyThread) {
    const std::vector<Device> devices = {MakeCpuDevice(), MakeCpuDevice(), MakeCpuDevice()};
    for (int round = 0; round < 100; ++round) {
        auto x = CountUp({100}, devices[0]);
        std::vector<std::thread> threads;
        for (const Device& device : devices) {
            // Views of one storage: whoever is last has it, and the bytes are counted once.
            threads.emplace_back([view = x->Detach(), &device] { EXPECT_EQ(view->HandOver(device)->num_rows(), 1); });
        }
        x.reset();
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
    for (const Device& device : devices) {
        EXPECT_EQ(LiveBytes(device), 0);
        EXPECT_LE(device.allocator->stats().peak_bytes, 512);
    }
}

TEST(TensorDeathTest, IsHandedOverOnTheSameHardwareOnly) {
    const auto x = CountUp({2}, MakeCpuDevice());
    const Device other = {.type = DeviceType::kCUDA, .index = 1, .allocator = std::make_shared<CachingCpuAllocator>()};
    EXPECT_DEATH(x->HandOver(other), "from cpu to cuda:1");
}

TEST(TensorDeathTest, RefusesWhatDoesNotFit) {
    const Device device = MakeCpuDevice();
    const auto x = CountUp({3, 2}, device);
    EXPECT_DEATH(x->data<int32_t>(), "float32.*int32");
    EXPECT_DEATH(x->ToVector<BFloat16>(), "float32.*bfloat16");
    EXPECT_DEATH(x->View({7}), "\\[3, 2\\].*\\[7\\]");
    EXPECT_DEATH(x->Slice(2, 4), "\\[2, 4\\).*\\[3, 2\\]");
    EXPECT_DEATH(x->Slice(2, 1), "\\[2, 1\\)");
    EXPECT_DEATH(x->dim(2), "axis 2");
    EXPECT_DEATH(x->CopyFrom(*x->View({2, 3})), "\\[2, 3\\].*\\[3, 2\\]");
    EXPECT_DEATH(x->CopyFrom(*Tensor::Zeros({3, 2}, DataType::kInt32, device)), "int32.*float32");
    EXPECT_DEATH(Tensor::FromVector<float>({1.0f}, {2}, device), "1 vs. 2");
}

TEST(Leaf, KeepsOneGradientBufferFromStepToStep) {
    const Device device = MakeCpuDevice();
    const auto leaf = Tensor::Zeros({2}, DataType::kBFloat16, device);
    EXPECT_FALSE(leaf->requires_grad());
    leaf->set_requires_grad(true);
    EXPECT_TRUE(leaf->requires_grad());
    EXPECT_EQ(leaf->grad(), nullptr);
    const Tensor::GradSlot first = leaf->AcquireGrad();
    EXPECT_FALSE(first.accumulate);
    EXPECT_EQ(first.grad->dtype(), DataType::kFloat32);
    EXPECT_EQ(first.grad->shape(), leaf->shape());
    EXPECT_EQ(leaf->grad(), first.grad);
    EXPECT_TRUE(leaf->AcquireGrad().accumulate);
    leaf->ClearGrad();
    EXPECT_EQ(leaf->grad(), nullptr);
    const Tensor::GradSlot next = leaf->AcquireGrad();
    EXPECT_FALSE(next.accumulate);
    EXPECT_EQ(next.grad, first.grad);
}

TEST(Leaf, IsLeftBehindByDetachAndViews) {
    const auto leaf = CountUp({2}, MakeCpuDevice());
    leaf->set_requires_grad(true);
    EXPECT_FALSE(leaf->Detach()->requires_grad());
    EXPECT_FALSE(leaf->View({1, 2})->requires_grad());
    EXPECT_FALSE(leaf->Slice(0, 1)->requires_grad());
}

TEST(Leaf, RunsItsHooksInOrder) {
    const auto leaf = CountUp({2}, MakeCpuDevice());
    std::vector<int> calls;
    leaf->AddGradHook([&](Tensor& tensor) { calls.push_back(&tensor == leaf.get() ? 1 : -1); });
    leaf->AddGradHook([&](Tensor&) { calls.push_back(2); });
    leaf->RunGradHooks();
    EXPECT_EQ(calls, (std::vector<int>{1, 2}));
}

TEST(LeafDeathTest, RefusesGradientsOfIntegersAndOfOtherTensors) {
    const Device device = MakeCpuDevice();
    const auto ids = Tensor::Zeros({2}, DataType::kInt32, device);
    const auto x = CountUp({2}, device);
    EXPECT_DEATH(ids->set_requires_grad(true), "int32");
    EXPECT_DEATH(x->AcquireGrad(), "not a leaf");
    EXPECT_DEATH(x->set_master(ids), "\\[2\\]");
    EXPECT_DEATH(x->set_master(CountUp({3}, device)), "\\[3\\]");
}

}  // namespace
}  // namespace infini_train
