#include "infini_train/include/kernels/embedding.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/kernels/fill.h"
#include "test/kernels/cuda/poison.h"
#include "test/support/cuda_compare.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::CopyTo;
using test::PoisonFreeMemory;
using test::RandomTensor;
using test::SameBytes;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;

/// Id v comes counts[v] times, and the positions of the ids are mixed.
std::vector<int32_t> IdsWithCounts(const std::vector<int64_t>& counts) {
    std::vector<int32_t> sorted;
    for (size_t v = 0; v < counts.size(); ++v) {
        sorted.insert(sorted.end(), static_cast<size_t>(counts[v]), static_cast<int32_t>(v));
    }
    size_t stride = sorted.size() / 3 + 1;
    while (std::gcd(stride, sorted.size()) != 1) {
        ++stride;
    }
    std::vector<int32_t> ids(sorted.size());
    for (size_t n = 0; n < ids.size(); ++n) {
        ids[n] = sorted[n * stride % ids.size()];
    }
    return ids;
}

/// The sums on the GPU have the bits of the CPU: both add in the order of the positions.
void ExpectBackwardOfTheCpu(const std::vector<int32_t>& ids, int64_t vocab_size, int64_t columns, DataType dtype,
                            const Device& cpu, const Device& gpu) {
    const auto count = static_cast<int64_t>(ids.size());
    const auto ids_cpu = Tensor::FromVector(ids, {count}, cpu);
    const auto ids_gpu = CopyTo(*ids_cpu, gpu);
    const auto dy = RandomTensor({count, columns}, dtype, cpu, 1);
    const auto dy_gpu = CopyTo(*dy, gpu);
    for (const bool accumulate : {false, true}) {
        const auto wanted = accumulate ? RandomTensor({vocab_size, columns}, DataType::kFloat32, cpu, 2)
                                       : Tensor::Empty({vocab_size, columns}, DataType::kFloat32, cpu);
        if (!accumulate) {
            fill(kCpu, *wanted, std::numeric_limits<float>::quiet_NaN());
        }
        const auto got = CopyTo(*wanted, gpu);
        const auto again = CopyTo(*wanted, gpu);
        embedding_backward(kCpu, *dy, *ids_cpu, *wanted, accumulate);
        embedding_backward(kCuda, *dy_gpu, *ids_gpu, *got, accumulate);
        embedding_backward(kCuda, *dy_gpu, *ids_gpu, *again, accumulate);
        EXPECT_TRUE(SameBytes(*got, *wanted))
            << count << " ids, " << columns << " columns, " << Name(dtype) << (accumulate ? ", accumulated" : "");
        EXPECT_TRUE(SameBytes(*again, *got));
    }
}

TEST(CudaEmbedding, TakesTheRowOfEachId) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const int64_t count : {0, 1, 7, 600}) {
            for (const int64_t columns : {0, 1, 7, 8, 65, 130, 768, 1032}) {
                const int64_t vocab_size = 37;
                std::vector<int32_t> ids;
                for (int64_t n = 0; n < count; ++n) {
                    ids.push_back(static_cast<int32_t>(n * n % vocab_size));
                }
                const auto ids_cpu = Tensor::FromVector(ids, {count, 1}, cpu);
                const auto weight = RandomTensor({vocab_size + 1, columns}, dtype, cpu, 1)->Slice(1, vocab_size + 1);
                // Of odd columns, a slice that is not aligned.
                const auto weight_gpu = Tensor::Empty({vocab_size + 1, columns}, dtype, gpu)->Slice(1, vocab_size + 1);
                weight_gpu->CopyFrom(*weight);
                const auto ids_gpu = CopyTo(*ids_cpu, gpu);
                PoisonFreeMemory({count, 1, columns}, dtype, gpu);
                const auto y = embedding_forward(kCuda, *ids_gpu, *weight_gpu);
                EXPECT_TRUE(SameBytes(*y, *embedding_forward(kCpu, *ids_cpu, *weight)))
                    << count << " ids, " << columns << " columns, " << Name(dtype);
            }
        }
    }
}

TEST(CudaEmbedding, BackwardHasTheBitsOfTheCpuForAnyNumberOfOneId) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    // Around the 64 from which on a run is long, its multiples, and the 256 rows that are added at a time.
    for (const int64_t count : {0, 1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 512, 513, 1000}) {
        for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
            // Id 2 of 5: the rows of the others become or stay what they should.
            ExpectBackwardOfTheCpu(std::vector<int32_t>(static_cast<size_t>(count), 2), 5, 40, dtype, cpu, gpu);
        }
    }
}

TEST(CudaEmbedding, BackwardHasTheBitsOfTheCpuForRunsOfAllKinds) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    // Long runs that begin right at, before and after a multiple of 64, and short ones between them.
    const std::vector<std::vector<int64_t>> patterns = {
        {3, 64, 1, 63, 65, 0, 127, 128, 2, 256, 320, 31, 257, 0},
        {64, 64, 63, 64, 65, 64, 1, 1, 62, 66, 63, 63, 63, 129},
        {1, 1, 1, 1, 1, 0, 0, 1, 2, 0, 3, 40, 33},
        std::vector<int64_t>(300, 1),
        std::vector<int64_t>(130, 32),  // what a position embedding has for 32 rows
    };
    for (const std::vector<int64_t>& counts : patterns) {
        const std::vector<int32_t> ids = IdsWithCounts(counts);
        for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
            // One, less than a vector, no multiple of one, a tile and more, several tiles of every kernel.
            for (const int64_t columns : {1, 7, 65, 72, 130, 264}) {
                ExpectBackwardOfTheCpu(ids, static_cast<int64_t>(counts.size()), columns, dtype, cpu, gpu);
            }
        }
    }
}

TEST(CudaEmbedding, BackwardHasTheBitsOfTheCpuForALargeVocabulary) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    constexpr int64_t kVocabSize = 50304;
    std::vector<int32_t> ids;
    for (int64_t n = 0; n < 8192; ++n) {
        // A tenth is one id, and there are the first, the last and many between.
        ids.push_back(static_cast<int32_t>(n % 10 == 3 ? 11 : n == 5 ? kVocabSize - 1 : n * n % kVocabSize));
    }
    ExpectBackwardOfTheCpu(ids, kVocabSize, 768, DataType::kBFloat16, cpu, gpu);
}

TEST(CudaEmbedding, BackwardHasTheBitsOfTheCpuOnASliceThatIsNotAligned) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    const std::vector<int32_t> ids = IdsWithCounts({70, 3, 1});
    const auto count = static_cast<int64_t>(ids.size());
    const auto ids_cpu = Tensor::FromVector(ids, {count}, cpu);
    const auto dy = RandomTensor({count, 8}, DataType::kBFloat16, cpu, 1);
    // The eight columns divide into vectors, but their address does not.
    const auto dy_gpu =
        Tensor::Empty({count * 8 + 1}, DataType::kBFloat16, gpu)->Slice(1, count * 8 + 1)->View({count, 8});
    dy_gpu->CopyFrom(*dy);
    const auto wanted = Tensor::Zeros({3, 8}, DataType::kFloat32, cpu);
    const auto got = Tensor::Zeros({3, 8}, DataType::kFloat32, gpu);
    embedding_backward(kCpu, *dy, *ids_cpu, *wanted, true);
    embedding_backward(kCuda, *dy_gpu, *CopyTo(*ids_cpu, gpu), *got, true);
    EXPECT_TRUE(SameBytes(*got, *wanted));
}

/// Runs f and waits for the GPU; ends with 3 when that reports an error, which it keeps for ever.
template <typename F>
void ExitWithTheGpusError(const Device& gpu, F&& f) {
    try {
        f();
        StreamOf(gpu)->Synchronize();
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        std::_Exit(3);
    }
}

TEST(CudaEmbeddingDeathTest, RefusesAnIdOutsideTheVocabulary) {
    INFINI_SKIP_WITHOUT_CUDA();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child has no GPU
    const Device gpu = MakeCudaDevice(0);
    const auto weight = Tensor::Zeros({3, 2}, DataType::kFloat32, gpu);
    const auto dy = Tensor::Zeros({2, 2}, DataType::kFloat32, gpu);
    for (const int32_t id : {3, -1}) {
        const auto ids = Tensor::FromVector<int32_t>({0, id}, {2}, gpu);
        EXPECT_EXIT(ExitWithTheGpusError(gpu, [&] { embedding_forward(kCuda, *ids, *weight); }),
                    testing::ExitedWithCode(3), "CUDA");
        EXPECT_EXIT(ExitWithTheGpusError(gpu, [&] { embedding_backward(kCuda, *dy, *ids, *weight, true); }),
                    testing::ExitedWithCode(3), "CUDA");
    }
}

TEST(CudaEmbeddingDeathTest, RefusesOperandsThatDoNotFit) {
    INFINI_SKIP_WITHOUT_CUDA();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child has no GPU
    const Device gpu = MakeCudaDevice(0);
    const auto ids = Tensor::FromVector<int32_t>({0, 1}, {2}, gpu);
    const auto vector = Tensor::Zeros({2}, DataType::kFloat32, gpu);
    const auto dy = Tensor::Zeros({2, 2}, DataType::kFloat32, gpu);
    const auto wide = Tensor::Zeros({3, 4}, DataType::kFloat32, gpu);
    EXPECT_DEATH(embedding_forward(kCuda, *ids, *vector), "embedding_forward.*\\[2\\]");
    EXPECT_DEATH(embedding_backward(kCuda, *dy, *ids, *wide, false), "embedding_backward.*\\[2, 2\\].*\\[3, 4\\]");
    EXPECT_DEATH(embedding_forward(kCuda, *vector, *wide), "float32.*int32");
}

}  // namespace
}  // namespace infini_train::kernels
