#include "infini_train/include/core/meta_allocator.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/core/caching_allocator.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/core/random.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train {
namespace {

constexpr uintptr_t kPageBytes = 4096;

void ExpectSameCounts(const Allocator& meta, const Allocator& cpu) {
    ASSERT_EQ(meta.stats().live_bytes, cpu.stats().live_bytes);
    ASSERT_EQ(meta.stats().peak_bytes, cpu.stats().peak_bytes);
}

TEST(MetaAllocator, CountsLikeACpuAllocator) {
    MetaAllocator meta;
    CachingCpuAllocator cpu;
    std::vector<std::pair<void*, void*>> blocks;
    for (uint64_t i = 0; i < 2000; ++i) {
        const auto number = [i](uint64_t stream, uint64_t limit) {
            return static_cast<size_t>(Philox({.seed = 1, .stream = stream}, i)[0] % limit);
        };
        if (blocks.empty() || number(0, 5) < 3) {
            const size_t size_bytes = number(1, 3) == 0 ? number(2, 4) * 256 : number(2, 100000);
            blocks.emplace_back(meta.Allocate(size_bytes), cpu.Allocate(size_bytes));
        } else {
            std::swap(blocks[number(1, blocks.size())], blocks.back());
            meta.Free(blocks.back().first);
            cpu.Free(blocks.back().second);
            blocks.pop_back();
        }
        ExpectSameCounts(meta, cpu);
        if (i % 500 == 499) {
            meta.ResetPeak();
            cpu.ResetPeak();
            ExpectSameCounts(meta, cpu);
        }
    }
    for (const auto& [meta_block, cpu_block] : blocks) {
        meta.Free(meta_block);
        cpu.Free(cpu_block);
    }
    ExpectSameCounts(meta, cpu);
    EXPECT_EQ(meta.stats().live_bytes, 0);
    EXPECT_EQ(meta.stats().reserved_bytes, 0);
    EXPECT_EQ(meta.stats().num_system_requests, 0);
}

TEST(MetaAllocator, GivesEachBlockAddressesOfItsOwnThatAreNotMapped) {
    MetaAllocator allocator;
    std::map<uintptr_t, size_t> blocks;
    void* hole = allocator.Allocate(1000);
    for (size_t i = 0; i < 100; ++i) {
        const size_t size_bytes = i * 1031 + 1;
        const auto address = reinterpret_cast<uintptr_t>(allocator.Allocate(size_bytes));
        ASSERT_NE(address, 0u);
        ASSERT_EQ(address % Allocator::kAlignment, 0u);
        ASSERT_TRUE(blocks.emplace(address, size_bytes).second);
        void* const page = reinterpret_cast<void*>(address / kPageBytes * kPageBytes);
        unsigned char resident = 0;
        EXPECT_EQ(mincore(page, kPageBytes, &resident), -1);
        EXPECT_EQ(errno, ENOMEM) << "a page that is mapped";
        if (i == 50) {
            allocator.Free(hole);
        }
    }
    uintptr_t end = 0;
    for (const auto& [address, size_bytes] : blocks) {
        EXPECT_GE(address, end) << "two blocks overlap";
        end = address + size_bytes;
    }
    for (const auto& [address, size_bytes] : blocks) {
        allocator.Free(reinterpret_cast<void*>(address));
    }
}

TEST(MetaAllocator, GivesNullForNothingAndTakesItBack) {
    MetaAllocator allocator;
    EXPECT_EQ(allocator.Allocate(0), nullptr);
    allocator.Free(nullptr);
    EXPECT_EQ(allocator.StopCounting(nullptr), 0);
    EXPECT_EQ(allocator.stats().peak_bytes, 0);
}

TEST(MetaAllocator, HandsOutMoreThanAnyMachineHasButNotMoreThanThereAreAddresses) {
    MetaAllocator allocator;
    for (const size_t size_bytes : {SIZE_MAX, SIZE_MAX - 255, SIZE_MAX / 2 + 1, size_t{1} << 60, size_t{1} << 55}) {
        try {
            allocator.Allocate(size_bytes);
            FAIL() << "no Error for " << size_bytes << " bytes";
        } catch (const Error& error) {
            EXPECT_EQ(error.what(), "meta memory: out of memory (got 0 bytes in use, wanted " +
                                        std::to_string(size_bytes) + " bytes more)");
            EXPECT_EQ(error.exit_code(), 1);
        }
    }
    // Again and again: what was freed is used again.
    for (int i = 0; i < 100; ++i) {
        void* large = allocator.Allocate(size_t{1} << 54);
        void* small = allocator.Allocate(1);
        EXPECT_THROW(allocator.Allocate(size_t{1} << 54), Error);
        EXPECT_EQ(allocator.stats().live_bytes, (int64_t{1} << 54) + 256);
        allocator.Free(large);
        allocator.Free(small);
    }
    EXPECT_EQ(allocator.stats().live_bytes, 0);
}

TEST(MetaAllocator, CountsAHandedOverBlockWhereItGoes) {
    const Device from = MakeMetaDevice();
    const Device to = MakeMetaDevice();
    auto sent = Tensor::Empty({100}, DataType::kFloat32, from);
    const auto received = sent->HandOver(to);
    EXPECT_EQ(from.allocator->stats().live_bytes, 0);
    EXPECT_EQ(to.allocator->stats().live_bytes, 512);
    EXPECT_EQ(to.allocator->stats().peak_bytes, 512);
    // A new block on the sender is another one: the first is still taken.
    const auto next = Tensor::Empty({100}, DataType::kFloat32, from);
    EXPECT_NE(next->raw_data(), received->raw_data());
    EXPECT_EQ(from.allocator->stats().live_bytes, 512);
    EXPECT_EQ(from.allocator->stats().peak_bytes, 512);
}

TEST(MetaAllocator, CountsNothingAnyMoreWhenAHandedOverBlockEnds) {
    const Device from = MakeMetaDevice();
    const Device to = MakeMetaDevice();
    Tensor::Empty({100}, DataType::kFloat32, from)->HandOver(to);
    EXPECT_EQ(from.allocator->stats().live_bytes, 0);
    EXPECT_EQ(to.allocator->stats().live_bytes, 0);
}

TEST(MetaAllocator, IsSharedByThreads) {
    MetaAllocator allocator;
    // Each thread frees what the other took.
    std::vector<std::vector<void*>> taken(2);
    const auto run = [&](const auto& work) {
        std::thread first(work, 0u);
        std::thread second(work, 1u);
        first.join();
        second.join();
    };
    run([&](size_t thread) {
        for (size_t i = 0; i < 500; ++i) {
            taken[thread].push_back(allocator.Allocate(i + 1));
        }
    });
    EXPECT_EQ(allocator.stats().live_bytes, 2 * (256 * 256 + 244 * 512));
    run([&](size_t thread) {
        for (void* block : taken[1 - thread]) {
            allocator.Free(block);
        }
    });
    EXPECT_EQ(allocator.stats().live_bytes, 0);
}

TEST(MetaAllocatorDeathTest, RefusesToTakeBackTwiceOrWhatIsNotItsOwn) {
    MetaAllocator allocator;
    void* block = allocator.Allocate(1000);
    EXPECT_DEATH(allocator.Free(static_cast<char*>(block) + 256), "did not hand out");
    EXPECT_DEATH(
        {
            allocator.StopCounting(block);
            allocator.StopCounting(block);
        },
        "handed over already");
    allocator.Free(block);
    EXPECT_DEATH(allocator.Free(block), "did not hand out");
}

TEST(MetaDevice, HasAName) {
    EXPECT_EQ(ToString(MakeMetaDevice()), "meta");
    EXPECT_EQ(ToString(MakeCpuDevice()), "cpu");
    EXPECT_EQ(ToString(Device{.type = DeviceType::kCUDA, .index = 3, .allocator = nullptr}), "cuda:3");
    EXPECT_TRUE(MakeMetaDevice() == MakeMetaDevice());
    EXPECT_FALSE(MakeMetaDevice() == MakeCpuDevice());
}

TEST(MetaDevice, HasTensorsWithoutValues) {
    const Device device = MakeMetaDevice();
    const auto x = Tensor::FromVector(std::vector<float>{1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {2, 3}, device);
    EXPECT_EQ(x->shape(), (Shape{2, 3}));
    EXPECT_EQ(x->size_bytes(), 24u);
    const auto zeros = Tensor::Zeros({2, 3}, DataType::kFloat32, device);
    zeros->CopyFrom(*x);
    zeros->CopyFrom(*Tensor::Zeros({2, 3}, DataType::kFloat32, MakeCpuDevice()));
    EXPECT_EQ(device.allocator->stats().live_bytes, 512);
    const auto row = x->Slice(1, 2);
    EXPECT_EQ(static_cast<char*>(row->raw_data()) - static_cast<char*>(x->raw_data()), 12);
    EXPECT_EQ(device.allocator->stats().live_bytes, 512);
}

TEST(MetaDeviceDeathTest, RefusesToReadValuesAndToCopyAnotherShape) {
    const Device device = MakeMetaDevice();
    const auto x = Tensor::Zeros({2, 3}, DataType::kFloat32, device);
    EXPECT_DEATH(x->ToVector<float>(), "\\[2, 3\\] on a meta device has no values");
    EXPECT_DEATH(Tensor::Zeros({2, 3}, DataType::kFloat32, MakeCpuDevice())->CopyFrom(*x), "has no values");
    EXPECT_DEATH(x->CopyFrom(*Tensor::Zeros({3, 2}, DataType::kFloat32, device)), "\\[3, 2\\] into \\[2, 3\\]");
    EXPECT_DEATH(Tensor::FromVector(std::vector<float>{1.0f}, {2}, device), "1 vs. 2");
}

}  // namespace
}  // namespace infini_train
