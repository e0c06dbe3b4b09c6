#include "infini_train/include/kernels/attention_cached.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "test/kernels/attention_cached_case.h"
#include "test/kernels/cuda/poison.h"
#include "test/support/cuda_compare.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::CopyTo;
using test::ExpectClose;
using test::PoisonFreeMemory;
using test::RandomTensor;
using test::SameBytes;

constexpr DeviceType kCuda = DeviceType::kCUDA;

class CudaAttentionCached : public testing::TestWithParam<std::tuple<DataType, CachedCase>> {};

TEST_P(CudaAttentionCached, IsThatOfTheCpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const auto& [dtype, size] = GetParam();
    const Device gpu = MakeCudaDevice(0);
    const bool is_narrow = dtype == DataType::kBFloat16;
    const auto qkv = RandomTensor(size.qkv_shape(), dtype, MakeCpuDevice(), 1, 2.0f);
    const CachedRun wanted = RunByPieces(size, *qkv);
    const auto qkv_gpu = CopyTo(*qkv, gpu);
    PoisonFreeMemory({size.batch_size, 1, size.heads.num_heads * size.head_dim}, dtype, gpu);
    const CachedRun got = RunByPieces(size, *qkv_gpu);
    // float32: sums in another order. bfloat16: to the neighbour; the first piece may go to cuDNN, which rounds weights
    // to 2^-9 of each before it sums their products with values of up to 2.
    ExpectClose(*got.out, *wanted.out, is_narrow ? 0x1p-7 : 1e-5, is_narrow ? 0x1p-6 : 1e-5);
    EXPECT_TRUE(SameBytes(*RunByPieces(size, *qkv_gpu).out, *got.out)) << "differs from time to time";
    // NaN included: what no piece has written.
    EXPECT_TRUE(SameBytes(*got.keys, *wanted.keys));
    EXPECT_TRUE(SameBytes(*got.values, *wanted.values));
}

std::vector<CachedCase> CasesWithLongCaches() {
    std::vector<CachedCase> cases = CachedCases();
    cases.push_back({.batch_size = 1, .pieces = {1023, 1, 1}, .heads = {32, 8}, .head_dim = 128});
    cases.push_back({.batch_size = 5, .pieces = {31, 1, 1, 34}, .heads = {10, 2}, .head_dim = 100});
    return cases;
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaAttentionCached,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::ValuesIn(CasesWithLongCaches())));

TEST(CudaAttentionCachedValues, SurviveScoresThatOverflowAnExponential) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device gpu = MakeCudaDevice(0);
    const auto keys = Tensor::FromVector<float>({100.0f, -100.0f, 0.0f}, {1, 3, 1, 1}, gpu);
    const auto values = Tensor::FromVector<float>({1.0f, 2.0f, 0.0f}, {1, 3, 1, 1}, gpu);
    for (const float query : {100.0f, -100.0f}) {
        const auto qkv = Tensor::FromVector<float>({query, 0.0f, 3.0f}, {1, 1, 3}, gpu);
        EXPECT_EQ(attention_cached(kCuda, *qkv, {1, 1}, 2, *keys, *values)->ToVector<float>(),
                  std::vector<float>{query > 0.0f ? 1.0f : 2.0f});
    }
}

TEST(CudaAttentionCachedValues, ShowANaN) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device gpu = MakeCudaDevice(0);
    for (const size_t position : {0, 3, 4, 40}) {  // of different lanes, groups and warps
        std::vector<float> kept(50 * 4, 0.0f);
        kept[position * 4] = std::numeric_limits<float>::quiet_NaN();
        const auto keys = Tensor::FromVector(kept, {1, 50, 1, 4}, gpu);
        const auto values = Tensor::Zeros({1, 50, 1, 4}, DataType::kFloat32, gpu);
        const auto qkv = Tensor::FromVector(std::vector<float>(12, 1.0f), {1, 1, 12}, gpu);
        for (const float out : attention_cached(kCuda, *qkv, {1, 1}, 49, *keys, *values)->ToVector<float>()) {
            EXPECT_TRUE(std::isnan(out)) << "key " << position;
        }
    }
}

TEST(CudaAttentionCachedValues, AreNoneForNoRows) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device gpu = MakeCudaDevice(0);
    const auto qkv = Tensor::Zeros({0, 1, 12}, DataType::kFloat32, gpu);
    const auto keys = Tensor::Zeros({0, 5, 1, 4}, DataType::kFloat32, gpu);
    const auto values = Tensor::Zeros({0, 5, 1, 4}, DataType::kFloat32, gpu);
    EXPECT_EQ(attention_cached(kCuda, *qkv, {1, 1}, 3, *keys, *values)->shape(), (Shape{0, 1, 4}));
}

TEST(CudaAttentionCachedValues, AreRefusedForHeadsThatAreTooWide) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device gpu = MakeCudaDevice(0);
    const auto qkv = Tensor::Zeros({1, 1, 3 * 257}, DataType::kFloat32, gpu);
    const auto keys = Tensor::Zeros({1, 2, 1, 257}, DataType::kFloat32, gpu);
    const auto values = Tensor::Zeros({1, 2, 1, 257}, DataType::kFloat32, gpu);
    EXPECT_THROW(attention_cached(kCuda, *qkv, {1, 1}, 1, *keys, *values), Error);
}

}  // namespace
}  // namespace infini_train::kernels
