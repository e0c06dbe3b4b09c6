#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/core/tensor.h"
#include "test/support/cuda_compare.h"

namespace infini_train {
namespace {

std::vector<float> Numbers(size_t count) {
    std::vector<float> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 1.0f);
    return numbers;
}

// More and fewer than fit into the pinned buffer.
TEST(CudaTensor, GoesToTheGpuAndBack) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}, size_t{300000}}) {
        const std::vector<float> numbers = Numbers(count);
        const auto tensor = Tensor::FromVector(numbers, {static_cast<int64_t>(count)}, device);
        EXPECT_EQ(tensor->ToVector<float>(), numbers);
        const auto copy = Tensor::Empty(tensor->shape(), tensor->dtype(), device);
        copy->CopyFrom(*tensor);
        tensor->SetZero();
        EXPECT_EQ(copy->ToVector<float>(), numbers);
        EXPECT_EQ(tensor->ToVector<float>(), std::vector<float>(count));
    }
}

TEST(CudaTensor, KeepsManySmallUploadsApart) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    TensorList tensors;
    for (int i = 0; i < 100; ++i) {
        tensors.push_back(Tensor::FromVector(std::vector<int32_t>(5, i), {5}, device));
    }
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(tensors[static_cast<size_t>(i)]->ToVector<int32_t>(), std::vector<int32_t>(5, i));
    }
}

TEST(CudaTensor, IsHandedOverToAnotherStreamOfTheSameGpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device sender = MakeCudaDevice(0);
    const Device receiver = MakeCudaDevice(0);
    auto tensor = Tensor::FromVector(Numbers(1000), {1000}, sender);
    const auto event = StreamOf(sender)->Record();
    const auto received = tensor->HandOver(receiver);
    tensor.reset();
    StreamOf(receiver)->WaitFor(*event);
    EXPECT_EQ(received->ToVector<float>(), Numbers(1000));
    EXPECT_EQ(sender.allocator->stats().live_bytes, 0);
    EXPECT_EQ(receiver.allocator->stats().live_bytes, 4096);
}

// A block whose last use is on another stream is written again only after that use.
TEST(CudaAllocator, WaitsForTheLastUseOfAnotherStream) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device owner = MakeCudaDevice(0);
    const Device user = MakeCudaDevice(0);
    constexpr int64_t kElements = int64_t{64} << 20;
    const auto wanted = Tensor::Empty({kElements}, DataType::kFloat32, user);
    for (int round = 0; round < 5; ++round) {
        auto tensor = Tensor::FromVector(std::vector<float>(kElements, 1.0f), {kElements}, owner);
        const auto ready = StreamOf(owner)->Record();
        StreamOf(user)->WaitFor(*ready);
        // Long enough that the owner's next work would come in between.
        for (int copy = 0; copy < 20; ++copy) {
            StreamOf(user)->Copy(tensor->raw_data(), wanted->raw_data(), tensor->size_bytes());
        }
        tensor->UsedUntil(StreamOf(user)->Record());
        tensor.reset();
        const auto other = Tensor::Zeros({kElements}, DataType::kFloat32, owner);
        const std::vector<float> values = wanted->ToVector<float>();
        EXPECT_EQ(std::count(values.begin(), values.end(), 1.0f), kElements);
    }
}

TEST(CudaAllocator, SaysWhatWasWantedAndWhatIsFree) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    try {
        Tensor::Empty({int64_t{1} << 45}, DataType::kUInt8, device);
        FAIL() << "32 TiB";
    } catch (const OutOfMemory& error) {
        EXPECT_GT(error.numbers().free_bytes, 0);
        EXPECT_GE(error.numbers().wanted_bytes, uint64_t{1} << 45);
        EXPECT_EQ(std::string(error.what()).rfind("cuda:0: out of memory", 0), 0u) << error.what();
    }
    // The allocator works on.
    EXPECT_EQ(Tensor::FromVector(Numbers(3), {3}, device)->ToVector<float>(), Numbers(3));
}

TEST(CudaDevice, IsRefusedWhereThereIsNone) {
    EXPECT_THROW(MakeCudaDevice(test::NumGpus()), Error);
    EXPECT_THROW(MakeCudaDevice(-1), Error);
}

TEST(CudaEvent, MeasuresWhatRanBetweenTwo) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    Stream* const stream = StreamOf(device);
    const auto tensor = Tensor::Zeros({int64_t{1} << 28}, DataType::kUInt8, device);
    const auto begin = stream->Record(/*with_time=*/true);
    tensor->SetZero();
    const auto end = stream->Record(/*with_time=*/true);
    stream->Synchronize();
    EXPECT_TRUE(end->IsDone());
    // 256 MiB: more than 20 us on any GPU, and far less than a second.
    EXPECT_GT(end->MsSince(*begin), 0.02);
    EXPECT_LT(end->MsSince(*begin), 1000.0);
}

}  // namespace
}  // namespace infini_train
