#include "infini_train/include/kernels/dropout.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

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
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;
// Every part has bits in both halves of its 64.
constexpr DropoutKey kKey = {.seed = 0x123456789abcdef0u,
                             .step = 0xfedcba9876543210u,
                             .layer = 0x0f0f0f0f10101010u,
                             .first_sample = 0x7000000080000001u};

TEST(CudaDropout, HasTheBitsOfTheCpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    // Nothing; less than a Philox block or a vector; one more than a block of 1024 float32 or 2048 bfloat16; whole
    // vectors; more samples than the grid has rows; what a layer has.
    const std::vector<Shape> shapes = {{0, 4},    {4, 0},    {3, 1},    {3, 7},     {2, 8},
                                       {3, 1025}, {3, 2049}, {2, 4096}, {70000, 3}, {4, 256, 768}};
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const Shape& shape : shapes) {
            for (const float p : {0.0f, 0.1f, 0.5f}) {
                const auto x = RandomTensor(shape, dtype, cpu, 1);
                const auto x_gpu = CopyTo(*x, gpu);
                PoisonFreeMemory(shape, dtype, gpu);
                const auto y = dropout(kCuda, *x_gpu, p, kKey);
                EXPECT_TRUE(SameBytes(*y, *dropout(kCpu, *x, p, kKey)))
                    << ToString(shape) << " " << Name(dtype) << " p " << p;
                EXPECT_TRUE(SameBytes(*dropout(kCuda, *x_gpu, p, kKey), *y));
            }
        }
    }
}

TEST(CudaDropout, DoesNotDependOnHowSamplesAreSplit) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device gpu = MakeCudaDevice(0);
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const int64_t columns : {7, 16}) {  // the second part not aligned, and aligned
            const auto x = RandomTensor({5, 3, columns}, dtype, gpu, 1);
            const auto whole = dropout(kCuda, *x, 0.5f, kKey);
            DropoutKey rest = kKey;
            rest.first_sample += 2;
            EXPECT_TRUE(SameBytes(*dropout(kCuda, *x->Slice(0, 2), 0.5f, kKey), *whole->Slice(0, 2)));
            EXPECT_TRUE(SameBytes(*dropout(kCuda, *x->Slice(2, 5), 0.5f, rest), *whole->Slice(2, 5)));
        }
    }
}

TEST(CudaDropout, DropsANaNAndKeepsAnother) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    const auto x = Tensor::Empty({1, 64}, DataType::kFloat32, cpu);
    fill(kCpu, *x, std::numeric_limits<float>::quiet_NaN());
    const std::vector<double> wanted = ToDoubles(*dropout(kCpu, *x, 0.5f, kKey));
    const std::vector<double> got = ToDoubles(*dropout(kCuda, *CopyTo(*x, gpu), 0.5f, kKey));
    for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(got[i] == 0.0, wanted[i] == 0.0) << i;
    }
}

TEST(CudaDropoutDeathTest, RefusesAProbabilityOutsideItsRange) {
    INFINI_SKIP_WITHOUT_CUDA();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child has no GPU
    const auto x = Tensor::Zeros({1, 1}, DataType::kFloat32, MakeCudaDevice(0));
    EXPECT_DEATH(dropout(kCuda, *x, 1.0f, kKey), "dropout: p 1");
    EXPECT_DEATH(dropout(kCuda, *x, -0.1f, kKey), "dropout: p -0.1");
}

}  // namespace
}  // namespace infini_train::kernels
