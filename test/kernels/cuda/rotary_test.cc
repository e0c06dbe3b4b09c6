#include "infini_train/include/kernels/rotary.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <ostream>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "test/kernels/cuda/poison.h"
#include "test/kernels/rotary_case.h"
#include "test/support/cuda_compare.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using test::CopyTo;
using test::ExpectClose;
using test::PoisonFreeMemory;
using test::RandomTensor;
using test::SameBytes;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;

class CudaRotary : public testing::TestWithParam<std::tuple<DataType, RotaryCase>> {};

TEST_P(CudaRotary, IsThatOfTheCpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const auto& [dtype, size] = GetParam();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    const int64_t num_slices = size.heads.num_heads + 2 * size.heads.num_kv_heads;
    const auto qkv = RandomTensor({size.batch_size, size.length, num_slices * size.head_dim}, dtype, cpu, 1);
    const auto angles = Angles(size.num_angles, size.head_dim, cpu);
    const auto qkv_gpu = CopyTo(*qkv, gpu);
    const auto angles_gpu = CopyTo(*angles, gpu);
    for (const bool inverse : {false, true}) {
        PoisonFreeMemory(qkv->shape(), dtype, gpu);
        const auto y = rotary(kCuda, *qkv_gpu, *angles_gpu, size.heads, inverse);
        // The devices may fuse one product or another with the sum: half a unit of a float32 product of at most 1. In
        // bfloat16 the result may then be rounded to the neighbour: one unit in the last place, of 8 bits.
        ExpectClose(*y, *rotary(kCpu, *qkv, *angles, size.heads, inverse), dtype == DataType::kBFloat16 ? 0x1p-7 : 0.0,
                    2e-7);
        EXPECT_TRUE(SameBytes(*rotary(kCuda, *qkv_gpu, *angles_gpu, size.heads, inverse), *y));

        const std::vector<double> from = ToDoubles(*qkv);
        const std::vector<double> got = ToDoubles(*y);
        const auto width = static_cast<size_t>(num_slices * size.head_dim);
        const auto turned = static_cast<size_t>((size.heads.num_heads + size.heads.num_kv_heads) * size.head_dim);
        for (size_t i = 0; i < from.size(); ++i) {
            if (i % width >= turned) {
                ASSERT_EQ(got[i], from[i]) << "values are copied: element " << i;
            }
        }
    }
}

// Head sizes that no vector divides; rows of part of a block, of more than one, and of more than one grid column.
constexpr RotaryCase kCases[] = {
    {.batch_size = 1, .length = 0, .heads = {1, 1}, .head_dim = 2, .num_angles = 1},
    {.batch_size = 1, .length = 1, .heads = {1, 1}, .head_dim = 2, .num_angles = 1},
    {.batch_size = 2, .length = 7, .heads = {4, 2}, .head_dim = 6, .num_angles = 9},
    {.batch_size = 2, .length = 65, .heads = {6, 2}, .head_dim = 34, .num_angles = 65},
    {.batch_size = 3, .length = 33, .heads = {5, 1}, .head_dim = 8, .num_angles = 40},
    {.batch_size = 3, .length = 33, .heads = {5, 1}, .head_dim = 12, .num_angles = 33},
    {.batch_size = 2, .length = 129, .heads = {32, 8}, .head_dim = 128, .num_angles = 200},
    {.batch_size = 4, .length = 512, .heads = {32, 8}, .head_dim = 64, .num_angles = 512},
};
INSTANTIATE_TEST_SUITE_P(Sizes, CudaRotary,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::ValuesIn(kCases)));

TEST(CudaRotaryDeathTest, RefusesAnglesThatDoNotFit) {
    INFINI_SKIP_WITHOUT_CUDA();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child has no GPU
    const Device gpu = MakeCudaDevice(0);
    const auto qkv = Tensor::Zeros({1, 3, 12}, DataType::kFloat32, gpu);
    EXPECT_DEATH(rotary(kCuda, *qkv, *Angles(2, 4, gpu), {1, 1}, false), "angles \\[2, 2, 2\\] for 3 positions");
    const auto odd = Tensor::Zeros({1, 3, 9}, DataType::kFloat32, gpu);
    EXPECT_DEATH(rotary(kCuda, *odd, *Angles(3, 2, gpu), {1, 1}, false), "heads are 3 wide");
}

}  // namespace
}  // namespace infini_train::kernels
