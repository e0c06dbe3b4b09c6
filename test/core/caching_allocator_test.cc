#include "infini_train/include/core/caching_allocator.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

namespace infini_train {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int64_t kAlignment = static_cast<int64_t>(Allocator::kAlignment);

TEST(CachingCpuAllocator, AlignsEveryBlockAndKeepsBlocksApart) {
    CachingCpuAllocator allocator;
    std::vector<unsigned char*> blocks;
    for (size_t i = 0; i < 200; ++i) {
        const size_t size_bytes = i * 37 + 1;
        auto* block = static_cast<unsigned char*>(allocator.Allocate(size_bytes));
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % Allocator::kAlignment, 0u);
        std::memset(block, static_cast<int>(i), size_bytes);
        blocks.push_back(block);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_EQ(blocks[i][0], i);
        EXPECT_EQ(blocks[i][i * 37], i);
        allocator.Free(blocks[i]);
    }
}

TEST(CachingCpuAllocator, GivesNullForNothingAndTakesItBack) {
    CachingCpuAllocator allocator;
    EXPECT_EQ(allocator.Allocate(0), nullptr);
    allocator.Free(nullptr);
    EXPECT_EQ(allocator.stats().num_system_requests, 0);
}

TEST(CachingCpuAllocator, AsksTheSystemOnceForTheSameSteps) {
    CachingCpuAllocator allocator;
    std::set<std::vector<void*>> addresses;
    for (int step = 0; step < 3; ++step) {
        std::vector<void*> blocks;
        for (const size_t size_bytes : {3 * kMiB, size_t{100}, 40 * kMiB, size_t{5000}, 7 * kMiB}) {
            blocks.push_back(allocator.Allocate(size_bytes));
        }
        addresses.insert(blocks);
        // In another order than they were taken in.
        for (const size_t i : {2, 0, 4, 1, 3}) {
            allocator.Free(blocks[i]);
        }
    }
    EXPECT_EQ(allocator.stats().num_system_requests, 2);  // 40 MiB do not fit a first segment of 32
    EXPECT_EQ(addresses.size(), 1u) << "every step has the same blocks";
}

TEST(CachingCpuAllocator, CountsLiveAndPeakBytes) {
    CachingCpuAllocator allocator;
    void* a = allocator.Allocate(1000);
    void* b = allocator.Allocate(1);
    EXPECT_EQ(allocator.stats().live_bytes, 5 * kAlignment);
    allocator.Free(a);
    EXPECT_EQ(allocator.stats().live_bytes, kAlignment);
    EXPECT_EQ(allocator.stats().peak_bytes, 5 * kAlignment);
    allocator.ResetPeak();
    EXPECT_EQ(allocator.stats().peak_bytes, kAlignment);
    a = allocator.Allocate(kAlignment);
    EXPECT_EQ(allocator.stats().peak_bytes, 2 * kAlignment);
    allocator.Free(a);
    allocator.Free(b);
    EXPECT_EQ(allocator.stats().live_bytes, 0);
    EXPECT_EQ(allocator.stats().reserved_bytes, int64_t{32} << 20);
}

TEST(CachingCpuAllocator, JoinsFreeNeighboursInAnyOrder) {
    std::vector<std::vector<size_t>> orders = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}};
    for (const std::vector<size_t>& order : orders) {
        CachingCpuAllocator allocator;
        std::vector<void*> quarters;
        for (int i = 0; i < 4; ++i) {
            quarters.push_back(allocator.Allocate(8 * kMiB));
        }
        for (const size_t i : order) {
            allocator.Free(quarters[i]);
        }
        void* whole = allocator.Allocate(32 * kMiB);
        EXPECT_EQ(whole, quarters[0]);
        EXPECT_EQ(allocator.stats().num_system_requests, 1);
        allocator.Free(whole);
    }
}

TEST(CachingCpuAllocator, NeverJoinsSegments) {
    CachingCpuAllocator allocator;
    std::vector<void*> segments;
    for (int i = 0; i < 4; ++i) {
        segments.push_back(allocator.Allocate(32 * kMiB));
    }
    for (void* segment : segments) {
        allocator.Free(segment);
    }
    void* large = allocator.Allocate(64 * kMiB);
    EXPECT_EQ(allocator.stats().num_system_requests, 5);
    allocator.Free(large);
}

TEST(CachingCpuAllocator, TakesTheSmallestHoleThatFits) {
    CachingCpuAllocator allocator;
    void* large = allocator.Allocate(4 * kMiB);
    void* wall = allocator.Allocate(1);
    void* small = allocator.Allocate(2 * kMiB);
    void* end = allocator.Allocate(1);
    allocator.Free(large);
    allocator.Free(small);
    EXPECT_EQ(allocator.Allocate(2 * kMiB), small);
    EXPECT_EQ(allocator.Allocate(3 * kMiB), large);
    for (void* block : {large, wall, small, end}) {
        allocator.Free(block);
    }
}

TEST(CachingCpuAllocator, IsSharedByThreads) {
    CachingCpuAllocator allocator;
    constexpr size_t kBlocks = 500;
    // Each thread frees what the other took.
    std::vector<std::vector<void*>> taken(2);
    const auto run = [&](const auto& work) {
        std::thread first(work, 0u);
        std::thread second(work, 1u);
        first.join();
        second.join();
    };
    for (int round = 0; round < 4; ++round) {
        run([&](size_t thread) {
            for (size_t i = 0; i < kBlocks; ++i) {
                auto* block = static_cast<size_t*>(allocator.Allocate((i * 131 + thread) % 5000 + sizeof(size_t)));
                *block = 2 * i + thread;
                taken[thread].push_back(block);
            }
        });
        run([&](size_t thread) {
            for (size_t i = 0; i < kBlocks; ++i) {
                EXPECT_EQ(*static_cast<size_t*>(taken[1 - thread][i]), 2 * i + 1 - thread);
                allocator.Free(taken[1 - thread][i]);
            }
            taken[1 - thread].clear();
        });
    }
    EXPECT_EQ(allocator.stats().live_bytes, 0);
    EXPECT_EQ(allocator.stats().num_system_requests, 1);
}

TEST(CachingCpuAllocator, RunsOutOfMemoryWithAnError) {
    CachingCpuAllocator allocator;
    for (const size_t size_bytes : {size_t{1} << 60, SIZE_MAX, SIZE_MAX - 255, SIZE_MAX / 2}) {
        try {
            allocator.Allocate(size_bytes);
            FAIL() << "no Error for " << size_bytes << " bytes";
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("host memory: out of memory"), std::string::npos) << error.what();
            EXPECT_EQ(error.exit_code(), 1);
        }
    }
    // And works on.
    void* block = allocator.Allocate(1);
    EXPECT_NE(block, nullptr);
    allocator.Free(block);
    EXPECT_EQ(allocator.stats().live_bytes, 0);
}

TEST(CachingCpuAllocator, CountsABlockThatIsHandedOverWhereItIs) {
    CachingCpuAllocator from;
    CachingCpuAllocator to;
    void* block = from.Allocate(1000);
    EXPECT_EQ(from.StopCounting(block), 4 * kAlignment);
    EXPECT_EQ(from.stats().live_bytes, 0);
    void* other = from.Allocate(1000);
    EXPECT_NE(other, block) << "a block that counts elsewhere is not free";
    to.CountHandedOver(4 * kAlignment);
    EXPECT_EQ(to.stats().live_bytes, 4 * kAlignment);
    to.CountHandedOver(-4 * kAlignment);
    EXPECT_EQ(to.stats().live_bytes, 0);
    EXPECT_EQ(to.stats().peak_bytes, 4 * kAlignment);
    EXPECT_EQ(to.stats().reserved_bytes, 0);
    from.Free(block);
    EXPECT_EQ(from.stats().live_bytes, 4 * kAlignment);
    // It can be taken again, and counts again.
    EXPECT_EQ(from.Allocate(1000), block);
    EXPECT_EQ(from.stats().live_bytes, 8 * kAlignment);
    from.Free(block);
    from.Free(other);
    EXPECT_EQ(from.stats().live_bytes, 0);
    EXPECT_EQ(from.stats().peak_bytes, 8 * kAlignment);
    EXPECT_EQ(from.StopCounting(nullptr), 0);
}

TEST(CachingCpuAllocatorDeathTest, HandsABlockOfItsOwnOverOnce) {
    CachingCpuAllocator allocator;
    void* block = allocator.Allocate(1000);
    EXPECT_DEATH(allocator.StopCounting(static_cast<char*>(block) + 256), "did not hand out");
    allocator.StopCounting(block);
    EXPECT_DEATH(allocator.StopCounting(block), "handed over already");
    allocator.Free(block);
    EXPECT_DEATH(allocator.StopCounting(block), "did not hand out");
}

TEST(CachingCpuAllocatorDeathTest, RefusesToFreeTwiceOrWhatIsNotItsOwn) {
    CachingCpuAllocator allocator;
    void* block = allocator.Allocate(1000);
    EXPECT_DEATH(allocator.Free(static_cast<char*>(block) + 256), "did not hand out");
    allocator.Free(block);
    EXPECT_DEATH(allocator.Free(block), "did not hand out");
}

}  // namespace
}  // namespace infini_train
