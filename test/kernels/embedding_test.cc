#include "infini_train/include/kernels/embedding.h"

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

/// Ids of which many come several times.
std::shared_ptr<Tensor> SomeIds(int64_t count, int32_t vocab_size, const Device& device) {
    std::vector<int32_t> ids;
    for (int64_t n = 0; n < count; ++n) {
        ids.push_back(static_cast<int32_t>(n * n % vocab_size));
    }
    return Tensor::FromVector(ids, {count}, device);
}

TEST(Embedding, TakesTheRowOfEachId) {
    const Device device = MakeCpuDevice();
    const auto weight = Tensor::FromVector<float>({0.0f, 1.0f, 10.0f, 11.0f, 20.0f, 21.0f}, {3, 2}, device);
    const auto ids = Tensor::FromVector<int32_t>({2, 0, 2, 1}, {2, 2}, device);
    const auto y = embedding_forward(kCpu, *ids, *weight);
    EXPECT_EQ(y->shape(), (Shape{2, 2, 2}));
    EXPECT_EQ(y->ToVector<float>(), (std::vector<float>{20.0f, 21.0f, 0.0f, 1.0f, 20.0f, 21.0f, 10.0f, 11.0f}));
}

TEST(Embedding, BackwardSumsTheRowsOfAnId) {
    const Device device = MakeCpuDevice();
    const auto dy = Tensor::FromVector<float>({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {3, 1, 2}, device);
    const auto ids = Tensor::FromVector<int32_t>({2, 0, 2}, {3, 1}, device);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto dweight = Tensor::FromVector<float>({nan, nan, nan, nan, nan, nan}, {3, 2}, device);
    embedding_backward(kCpu, *dy, *ids, *dweight, false);
    EXPECT_EQ(dweight->ToVector<float>(), (std::vector<float>{3.0f, 4.0f, 0.0f, 0.0f, 6.0f, 8.0f}));
    embedding_backward(kCpu, *dy, *ids, *dweight, true);
    EXPECT_EQ(dweight->ToVector<float>(), (std::vector<float>{6.0f, 8.0f, 0.0f, 0.0f, 12.0f, 16.0f}));
}

TEST(Embedding, BackwardAddsInTheOrderOfThePositions) {
    // The other way round, 1 would be lost: in float32, 1 - 1e8 is -1e8.
    const Device device = MakeCpuDevice();
    const auto dy = Tensor::FromVector<float>({1e8f, -1e8f, 1.0f}, {3, 1}, device);
    const auto ids = Tensor::FromVector<int32_t>({0, 0, 0}, {3}, device);
    const auto dweight = Tensor::Zeros({1, 1}, DataType::kFloat32, device);
    embedding_backward(kCpu, *dy, *ids, *dweight, false);
    EXPECT_EQ(dweight->ToVector<float>()[0], 1.0f);
}

TEST(Embedding, IsTheNaiveOneForBothDtypesAndOddSizes) {
    const Device device = MakeCpuDevice();
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const int64_t count : {0, 1, 7, 600}) {
            for (const int64_t columns : {0, 1, 65, 130}) {
                const int32_t vocab_size = 37;
                const auto ids = SomeIds(count, vocab_size, device);
                const auto weight = RandomTensor({vocab_size, columns}, dtype, device, 1);
                const auto y = embedding_forward(kCpu, *ids, *weight);
                ASSERT_EQ(y->shape(), (Shape{count, columns}));
                ASSERT_EQ(y->dtype(), dtype);
                const auto dweight = RandomTensor({vocab_size, columns}, DataType::kFloat32, device, 2);
                std::vector<float> wanted = dweight->ToVector<float>();
                const std::vector<double> rows = ToDoubles(*weight);
                const std::vector<double> values = ToDoubles(*y);
                const std::vector<int32_t> id = ids->ToVector<int32_t>();
                for (size_t i = 0; i < values.size(); ++i) {
                    const size_t width = static_cast<size_t>(columns);
                    const size_t element = static_cast<size_t>(id[i / width]) * width + i % width;
                    ASSERT_EQ(values[i], rows[element]) << "element " << i;
                    wanted[element] += static_cast<float>(values[i]);
                }
                embedding_backward(kCpu, *y, *ids, *dweight, true);
                EXPECT_EQ(dweight->ToVector<float>(), wanted);
            }
        }
    }
}

TEST(Embedding, BackwardHasTheSameBitsOnOneAndThreeThreads) {
    const Device device = MakeCpuDevice();
    const auto ids = SomeIds(600, 301, device);
    const auto dy = RandomTensor({600, 129}, DataType::kFloat32, device, 1);
    const auto run = [&](int num_threads, bool accumulate) {
        const NumThreadsGuard threads(num_threads);
        auto dweight = RandomTensor({301, 129}, DataType::kFloat32, device, 2);
        embedding_backward(kCpu, *dy, *ids, *dweight, accumulate);
        return dweight;
    };
    EXPECT_TRUE(SameBits(*run(1, false), *run(3, false)));
    EXPECT_TRUE(SameBits(*run(1, true), *run(3, true)));
}

TEST(EmbeddingDeathTest, RefusesAnIdOutsideTheVocabulary) {
    const Device device = MakeCpuDevice();
    const auto weight = Tensor::Zeros({3, 2}, DataType::kFloat32, device);
    const auto large = Tensor::FromVector<int32_t>({0, 3}, {2}, device);
    const auto negative = Tensor::FromVector<int32_t>({0, -1}, {2}, device);
    const auto dy = Tensor::Zeros({2, 2}, DataType::kFloat32, device);
    EXPECT_DEATH(embedding_forward(kCpu, *large, *weight), "embedding_forward: id 3 at position 1");
    EXPECT_DEATH(embedding_forward(kCpu, *negative, *weight), "embedding_forward: id -1 at position 1");
    EXPECT_DEATH(embedding_backward(kCpu, *dy, *large, *weight, false), "embedding_backward: id 3 at position 1");
}

TEST(EmbeddingDeathTest, RefusesOperandsThatDoNotFit) {
    const Device device = MakeCpuDevice();
    const auto ids = Tensor::FromVector<int32_t>({0, 1}, {2}, device);
    const auto vector = Tensor::Zeros({2}, DataType::kFloat32, device);
    const auto dy = Tensor::Zeros({2, 2}, DataType::kFloat32, device);
    const auto wide = Tensor::Zeros({3, 4}, DataType::kFloat32, device);
    EXPECT_DEATH(embedding_forward(kCpu, *ids, *vector), "embedding_forward.*\\[2\\]");
    EXPECT_DEATH(embedding_backward(kCpu, *dy, *ids, *wide, false), "embedding_backward.*\\[2, 2\\].*\\[3, 4\\]");
    EXPECT_DEATH(embedding_forward(kCpu, *vector, *wide), "float32.*int32");
}

}  // namespace
}  // namespace infini_train::kernels
