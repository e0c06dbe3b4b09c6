#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/kernels/accumulate.h"
#include "infini_train/include/kernels/add.h"
#include "infini_train/include/kernels/cast.h"
#include "infini_train/include/kernels/fill.h"
#include "infini_train/include/kernels/gelu.h"
#include "infini_train/include/kernels/swiglu.h"
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
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Nothing, one, less than a vector, one more than a block of float32 and of bfloat16, and what a layer has.
class CudaElementwise : public testing::TestWithParam<std::tuple<DataType, int64_t>> {
 protected:
    void SetUp() override {
        INFINI_SKIP_WITHOUT_CUDA();
        gpu_ = MakeCudaDevice(0);
    }

    DataType dtype() const { return std::get<0>(GetParam()); }
    int64_t count() const { return std::get<1>(GetParam()); }
    /// In bfloat16 both devices round nearly the same float32, which may lie on two sides of a tie: one unit in the
    /// last place, of 8 bits. In float32 the GPU's exponential and reciprocal are approximations.
    double relative() const { return dtype() == DataType::kBFloat16 ? 0x1p-7 : 1e-5; }

    /// On the CPU; from element `begin` of a tensor, so that with 1 it is not aligned.
    std::shared_ptr<Tensor> Random(uint64_t seed, int64_t begin = 0, float scale = 1.0f) {
        return RandomTensor({begin + count()}, dtype(), cpu_, seed, scale)->Slice(begin, begin + count());
    }
    /// A copy on the GPU that begins at that element, too.
    std::shared_ptr<Tensor> OnGpu(const Tensor& x, int64_t begin = 0) {
        const auto copy = Tensor::Empty({begin + count()}, x.dtype(), gpu_)->Slice(begin, begin + count());
        copy->CopyFrom(x);
        return copy;
    }
    /// NaN, with some more elements on both sides that no kernel may touch.
    struct Padded {
        std::shared_ptr<Tensor> whole;
        std::shared_ptr<Tensor> inner;
    };
    Padded Poisoned(DataType type, int64_t begin) {
        const auto whole = Tensor::Empty({begin + count() + 9}, type, gpu_);
        fill(kCuda, *whole, kNaN);
        return {.whole = whole, .inner = whole->Slice(begin, begin + count())};
    }
    void ExpectOutsideUntouched(const Padded& padded, int64_t begin) {
        const std::vector<double> values = ToDoubles(*padded.whole);
        for (size_t i = 0; i < values.size(); ++i) {
            const auto index = static_cast<int64_t>(i);
            if (index < begin || index >= begin + count()) {
                ASSERT_TRUE(std::isnan(values[i])) << "element " << index - begin << " of " << count();
            }
        }
    }

    Device cpu_ = MakeCpuDevice();
    Device gpu_;
};

TEST_P(CudaElementwise, AddHasTheBitsOfTheCpu) {
    for (const int64_t begin : {0, 1}) {
        const auto a = Random(1, begin);
        const auto b = Random(2, begin);
        PoisonFreeMemory({count()}, dtype(), gpu_);
        const auto y = add(kCuda, *OnGpu(*a, begin), *OnGpu(*b));
        EXPECT_TRUE(SameBytes(*y, *add(kCpu, *a, *b)));
    }
}

TEST_P(CudaElementwise, AccumulateHasTheBitsOfTheCpu) {
    for (const int64_t begin : {0, 1}) {
        const auto x = Random(1, begin);
        const auto wanted = RandomTensor({count()}, DataType::kFloat32, cpu_, 2);
        const Padded sum = Poisoned(DataType::kFloat32, begin);
        sum.inner->CopyFrom(*wanted);
        accumulate(kCpu, *x, *wanted, true);
        accumulate(kCuda, *OnGpu(*x, begin), *sum.inner, true);
        EXPECT_TRUE(SameBytes(*sum.inner, *wanted));
        ExpectOutsideUntouched(sum, begin);

        fill(kCuda, *sum.inner, kNaN);
        accumulate(kCpu, *x, *wanted, false);
        accumulate(kCuda, *OnGpu(*x, begin), *sum.inner, false);
        EXPECT_TRUE(SameBytes(*sum.inner, *wanted));
        ExpectOutsideUntouched(sum, begin);
    }
}

TEST_P(CudaElementwise, CastHasTheBitsOfTheCpu) {
    for (const int64_t begin : {0, 1}) {
        const auto x = Random(1, begin);
        for (const DataType to : {DataType::kFloat32, DataType::kBFloat16}) {
            const auto wanted = Tensor::Empty({count()}, to, cpu_);
            cast(kCpu, *x, *wanted);
            const Padded y = Poisoned(to, begin);
            cast(kCuda, *OnGpu(*x, begin), *y.inner);
            EXPECT_TRUE(SameBytes(*y.inner, *wanted));
            ExpectOutsideUntouched(y, begin);
        }
    }
}

TEST_P(CudaElementwise, FillSetsEveryElementAndNoOther) {
    for (const int64_t begin : {0, 1}) {
        const Padded x = Poisoned(dtype(), begin);
        fill(kCuda, *x.inner, -1.5f);
        EXPECT_EQ(ToDoubles(*x.inner), std::vector<double>(static_cast<size_t>(count()), -1.5));
        ExpectOutsideUntouched(x, begin);
    }
}

TEST_P(CudaElementwise, GeluIsThatOfTheCpu) {
    for (const int64_t begin : {0, 1}) {
        const auto x = Random(1, begin, 8.0f);
        const auto dy = Random(2, begin);
        const auto x_gpu = OnGpu(*x, begin);
        const auto dy_gpu = OnGpu(*dy, begin);
        PoisonFreeMemory({count()}, dtype(), gpu_);
        const auto y = gelu_forward(kCuda, *x_gpu);
        ExpectClose(*y, *gelu_forward(kCpu, *x), relative(), 1e-7);
        PoisonFreeMemory({count()}, dtype(), gpu_);
        const auto dx = gelu_backward(kCuda, *dy_gpu, *x_gpu);
        // The derivative has a zero where terms of about 1 cancel.
        ExpectClose(*dx, *gelu_backward(kCpu, *dy, *x), relative(), 1e-6);
        EXPECT_TRUE(SameBytes(*gelu_forward(kCuda, *x_gpu), *y));
        EXPECT_TRUE(SameBytes(*gelu_backward(kCuda, *dy_gpu, *x_gpu), *dx));
    }
}

TEST_P(CudaElementwise, SwigluIsThatOfTheCpu) {
    for (const int64_t begin : {0, 1}) {
        const auto gate = Random(1, begin, 8.0f);
        const auto up = Random(2, begin);
        const auto dy = Random(3, begin);
        const auto gate_gpu = OnGpu(*gate, begin);
        const auto up_gpu = OnGpu(*up, begin);
        const auto dy_gpu = OnGpu(*dy, begin);
        PoisonFreeMemory({count()}, dtype(), gpu_);
        const auto y = swiglu_forward(kCuda, *gate_gpu, *up_gpu);
        ExpectClose(*y, *swiglu_forward(kCpu, *gate, *up), relative(), 1e-7);
        PoisonFreeMemory({count()}, dtype(), gpu_);
        const SwigluGrad grad = swiglu_backward(kCuda, *dy_gpu, *gate_gpu, *up_gpu);
        const SwigluGrad wanted = swiglu_backward(kCpu, *dy, *gate, *up);
        ExpectClose(*grad.dgate, *wanted.dgate, relative(), 1e-6);
        ExpectClose(*grad.dup, *wanted.dup, relative(), 1e-7);
        const SwigluGrad again = swiglu_backward(kCuda, *dy_gpu, *gate_gpu, *up_gpu);
        EXPECT_TRUE(SameBytes(*again.dgate, *grad.dgate));
        EXPECT_TRUE(SameBytes(*again.dup, *grad.dup));
    }
}

TEST_P(CudaElementwise, AnAlignedVectorGivesTheBitsOfSingleElements) {
    const auto x = Random(1, 0, 8.0f);
    const auto dy = Random(2);
    const auto aligned = OnGpu(*x);
    const auto shifted = OnGpu(*x, 1);
    const auto dy_gpu = OnGpu(*dy);
    EXPECT_TRUE(SameBytes(*gelu_forward(kCuda, *aligned), *gelu_forward(kCuda, *shifted)));
    EXPECT_TRUE(SameBytes(*gelu_backward(kCuda, *dy_gpu, *aligned), *gelu_backward(kCuda, *dy_gpu, *shifted)));
    EXPECT_TRUE(SameBytes(*swiglu_backward(kCuda, *dy_gpu, *aligned, *dy_gpu).dgate,
                          *swiglu_backward(kCuda, *dy_gpu, *shifted, *dy_gpu).dgate));
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaElementwise,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::Values(0, 1, 7, 2049, 4097, 3072 * 1024 + 5)));

TEST(CudaActivations, HaveTheirLimitsFarFromZero) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device cpu = MakeCpuDevice();
    const Device gpu = MakeCudaDevice(0);
    const std::vector<float> far = {0.0f, -0.0f, 20.0f, -20.0f, 90.0f, -90.0f, 200.0f, -200.0f, 1e4f, -1e4f};
    const Shape shape = {static_cast<int64_t>(far.size())};
    const auto x = Tensor::FromVector(far, shape, cpu);
    const auto ones = Tensor::FromVector(std::vector<float>(far.size(), 1.0f), shape, cpu);
    const auto x_gpu = CopyTo(*x, gpu);
    const auto ones_gpu = CopyTo(*ones, gpu);
    // What is below the normal numbers may be 0 on the GPU, and far from zero the exponential loses |x| units.
    ExpectClose(*gelu_forward(kCuda, *x_gpu), *gelu_forward(kCpu, *x), 1e-5, 1e-30);
    ExpectClose(*gelu_backward(kCuda, *ones_gpu, *x_gpu), *gelu_backward(kCpu, *ones, *x), 1e-5, 1e-30);
    ExpectClose(*swiglu_forward(kCuda, *x_gpu, *ones_gpu), *swiglu_forward(kCpu, *x, *ones), 2e-5, 1e-30);
    const SwigluGrad grad = swiglu_backward(kCuda, *ones_gpu, *x_gpu, *ones_gpu);
    const SwigluGrad wanted = swiglu_backward(kCpu, *ones, *x, *ones);
    ExpectClose(*grad.dgate, *wanted.dgate, 2e-5, 1e-30);
    ExpectClose(*grad.dup, *wanted.dup, 2e-5, 1e-30);
}

TEST(CudaCast, KeepsNaNAndInfinity) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device gpu = MakeCudaDevice(0);
    const float infinity = std::numeric_limits<float>::infinity();
    const auto x = Tensor::FromVector<float>({kNaN, infinity, -infinity, 3.4e38f}, {4}, gpu);
    const auto y = Tensor::Zeros({4}, DataType::kBFloat16, gpu);
    cast(kCuda, *x, *y);
    const std::vector<double> values = ToDoubles(*y);
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ(values[1], double{infinity});
    EXPECT_EQ(values[2], -double{infinity});
    EXPECT_EQ(values[3], double{infinity}) << "rounds up past the largest bfloat16";
}

TEST(CudaElementwiseDeathTest, RefusesOperandsOfAnotherShapeOrDtype) {
    INFINI_SKIP_WITHOUT_CUDA();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child has no GPU
    const Device gpu = MakeCudaDevice(0);
    const auto x = Tensor::Zeros({2, 3}, DataType::kFloat32, gpu);
    const auto turned = Tensor::Zeros({3, 2}, DataType::kFloat32, gpu);
    const auto narrow = Tensor::Zeros({2, 3}, DataType::kBFloat16, gpu);
    const auto ids = Tensor::Zeros({2, 3}, DataType::kInt32, gpu);
    EXPECT_DEATH(add(kCuda, *x, *turned), "add: a \\[2, 3\\].*b \\[3, 2\\]");
    EXPECT_DEATH(accumulate(kCuda, *x, *narrow, false), "accumulate: .*bfloat16");
    EXPECT_DEATH(cast(kCuda, *x, *turned), "cast: x \\[2, 3\\].*\\[3, 2\\]");
    EXPECT_DEATH(fill(kCuda, *ids, 1.0f), "int32");
    EXPECT_DEATH(gelu_backward(kCuda, *turned, *x), "gelu_backward.*\\[3, 2\\].*\\[2, 3\\]");
    EXPECT_DEATH(swiglu_forward(kCuda, *x, *narrow), "swiglu_forward.*bfloat16.*float32");
    EXPECT_DEATH(swiglu_backward(kCuda, *turned, *x, *x), "swiglu_backward.*\\[3, 2\\]");
}

}  // namespace
}  // namespace infini_train::kernels
