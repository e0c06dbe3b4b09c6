#include "infini_train/include/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/fill.h"
#include "infini_train/src/kernels/cuda/cudnn_attention.h"
#include "infini_train/src/kernels/cuda/flash_attention.h"
#include "test/kernels/cuda/poison.h"
#include "test/support/cuda_compare.h"
#include "test/support/random_tensor.h"

namespace infini_train::kernels {
namespace {

using cuda::AttentionSizes;
using cuda::cudnn_attention;
using test::CopyTo;
using test::ExpectClose;
using test::PoisonFreeMemory;
using test::RandomTensor;
using test::SameBytes;
using test::ToDoubles;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;
// One unit in the last place of a bfloat16 is at most this part of it: two kernels that compute in float32 round to
// neighbours at the worst.
constexpr double kBFloat16Unit = 1.0 / 128.0;

struct Shapes {
    explicit Shapes(const AttentionSizes& sizes)
        : qkv{sizes.batch_size, sizes.length, sizes.row_width()},
          out{sizes.batch_size, sizes.length, sizes.out_width()},
          lse{sizes.batch_size, sizes.num_heads, sizes.length} {}
    Shape qkv, out, lse;
};

AttentionHeads HeadsOf(const AttentionSizes& sizes) {
    return {.num_heads = static_cast<int>(sizes.num_heads), .num_kv_heads = static_cast<int>(sizes.num_kv_heads)};
}

std::string Describe(const AttentionSizes& s) {
    std::ostringstream text;
    text << "B " << s.batch_size << ", T " << s.length << ", heads " << s.num_heads << "/" << s.num_kv_heads << " x "
         << s.head_dim;
    return text.str();
}

std::shared_ptr<Tensor> Poisoned(const Shape& shape, DataType dtype, const Device& device) {
    auto tensor = Tensor::Empty(shape, dtype, device);
    fill(device.type, *tensor, std::numeric_limits<float>::quiet_NaN());
    return tensor;
}

double Largest(const Tensor& tensor) {
    double largest = 0.0;
    for (const double value : ToDoubles(tensor)) {
        largest = std::max(largest, std::abs(value));
    }
    return largest;
}

/// The root of the mean squared difference over that of the mean square.
double RelativeDifference(const Tensor& got, const Tensor& wanted) {
    const std::vector<double> a = ToDoubles(got);
    const std::vector<double> b = ToDoubles(wanted);
    double difference = 0.0;
    double square = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        square += b[i] * b[i];
    }
    return std::sqrt(difference / square);
}

/// Inputs, and the CPU's results from them.
struct Reference {
    Reference(const AttentionSizes& sizes, DataType dtype) {
        const Device cpu = MakeCpuDevice();
        const Shapes shapes(sizes);
        // Scores of a few units: neither uniform nor one-hot.
        qkv = RandomTensor(shapes.qkv, dtype, cpu, 1, 2.0f);
        dout = RandomTensor(shapes.out, dtype, cpu, 2);
        const AttentionOutput output = attention_forward(kCpu, *qkv, HeadsOf(sizes));
        out = output.out;
        lse = output.lse;
        dqkv = attention_backward(kCpu, *dout, *qkv, *out, *lse, HeadsOf(sizes), true);
    }
    std::shared_ptr<Tensor> qkv, dout, out, lse, dqkv;
};

struct Results {
    std::shared_ptr<Tensor> out, lse, dqkv;
};

/// Both passes by our own kernels; the backward starts from a given forward, or from its own without one.
Results RunOwn(const AttentionSizes& sizes, const Tensor& qkv, const Tensor& dout, const Tensor* out = nullptr,
               const Tensor* lse = nullptr) {
    const Shapes shapes(sizes);
    Results results{.out = Poisoned(shapes.out, qkv.dtype(), qkv.device()),
                    .lse = Poisoned(shapes.lse, DataType::kFloat32, qkv.device()),
                    .dqkv = Poisoned(shapes.qkv, qkv.dtype(), qkv.device())};
    cuda::FlashForward(sizes, qkv, *results.out, *results.lse);
    cuda::FlashBackward(sizes, dout, qkv, out == nullptr ? *results.out : *out, lse == nullptr ? *results.lse : *lse,
                        *results.dqkv);
    return results;
}

bool SameResults(const Results& a, const Results& b) {
    return SameBytes(*a.out, *b.out) && SameBytes(*a.lse, *b.lse) && SameBytes(*a.dqkv, *b.dqkv);
}

class CudaAttention : public testing::TestWithParam<DataType> {
 protected:
    DataType dtype() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(DataTypes, CudaAttention, testing::Values(DataType::kFloat32, DataType::kBFloat16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(CudaAttention, OfOwnKernelsIsTheCpus) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    // float32: sums of D and T terms in another order, and exponentials of arguments rounded to 2^-24 of themselves.
    const double relative = dtype() == DataType::kFloat32 ? 1e-5 : kBFloat16Unit;
    const auto check = [&](const AttentionSizes& sizes) {
        SCOPED_TRACE(Describe(sizes));
        const Reference wanted(sizes, dtype());
        const auto out = CopyTo(*wanted.out, device);
        const auto lse = CopyTo(*wanted.lse, device);
        const Results got =
            RunOwn(sizes, *CopyTo(*wanted.qkv, device), *CopyTo(*wanted.dout, device), out.get(), lse.get());
        // What cancels in a sum is as wrong as its largest terms.
        ExpectClose(*got.out, *wanted.out, relative, 1e-5 * Largest(*wanted.out));
        ExpectClose(*got.lse, *wanted.lse, 1e-5, 1e-5);
        ExpectClose(*got.dqkv, *wanted.dqkv, relative, 2e-5 * Largest(*wanted.dqkv));
    };
    for (const AttentionHeads heads : {AttentionHeads{4, 4}, {8, 2}, {6, 1}}) {
        for (const int64_t head_dim : {1, 8, 16, 17, 32, 64, 80, 128, 256}) {
            for (const int64_t length : {1, 7, 64, 65, 200}) {
                for (const int64_t batch_size : {1, 3}) {
                    check({.batch_size = batch_size,
                           .length = length,
                           .num_heads = heads.num_heads,
                           .num_kv_heads = heads.num_kv_heads,
                           .head_dim = head_dim});
                    if (HasFailure()) {
                        return;  // the first shape that is wrong says enough
                    }
                }
            }
        }
    }
    check({.batch_size = 1, .length = 1024, .num_heads = 4, .num_kv_heads = 2, .head_dim = 64});
}

TEST_P(CudaAttention, IsTheCpusWhicheverKernelsServe) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const bool narrow = dtype() == DataType::kBFloat16;
    for (const AttentionSizes& sizes : {AttentionSizes{2, 8, 4, 4, 32},
                                        {1, 1, 2, 1, 64},
                                        {2, 64, 4, 4, 32},
                                        {1, 64, 8, 2, 16},
                                        {2, 72, 4, 2, 64},
                                        {1, 128, 6, 1, 80},
                                        {1, 100, 4, 4, 33},
                                        {2, 256, 4, 2, 128}}) {
        SCOPED_TRACE(Describe(sizes));
        const Reference wanted(sizes, dtype());
        const auto qkv = CopyTo(*wanted.qkv, device);
        PoisonFreeMemory(wanted.out->shape(), dtype(), device);
        PoisonFreeMemory(wanted.lse->shape(), DataType::kFloat32, device);
        const AttentionOutput output = attention_forward(kCuda, *qkv, HeadsOf(sizes));
        // cuDNN rounds weights and their gradients to bfloat16, 2^-9 of each, before it sums their products.
        const double relative = narrow ? kBFloat16Unit : 1e-5;
        ExpectClose(*output.out, *wanted.out, relative, (narrow ? 1.0 / 128 : 1e-5) * Largest(*wanted.out));
        ExpectClose(*output.lse, *wanted.lse, 1e-5, narrow ? 1e-4 : 1e-5);
        for (const bool deterministic : {true, false}) {
            PoisonFreeMemory(wanted.dqkv->shape(), dtype(), device);
            const auto dqkv = attention_backward(kCuda, *CopyTo(*wanted.dout, device), *qkv, *output.out, *output.lse,
                                                 HeadsOf(sizes), deterministic);
            // From its own out, which may be a unit off.
            ExpectClose(*dqkv, *wanted.dqkv, relative, (narrow ? 1.0 / 64 : 2e-5) * Largest(*wanted.dqkv));
        }
    }
}

TEST_P(CudaAttention, HasTheSameBitsEveryTime) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    for (const AttentionSizes& sizes : {AttentionSizes{2, 512, 8, 2, 64}, {3, 192, 4, 4, 32}, {2, 333, 6, 3, 128}}) {
        SCOPED_TRACE(Describe(sizes));
        const Shapes shapes(sizes);
        const auto qkv = RandomTensor(shapes.qkv, dtype(), device, 3, 2.0f);
        const auto dout = RandomTensor(shapes.out, dtype(), device, 4);
        const auto run = [&] {
            const AttentionOutput output = attention_forward(kCuda, *qkv, HeadsOf(sizes));
            return Results{
                .out = output.out,
                .lse = output.lse,
                .dqkv = attention_backward(kCuda, *dout, *qkv, *output.out, *output.lse, HeadsOf(sizes), true)};
        };
        const Results first = run();
        const Results first_own = RunOwn(sizes, *qkv, *dout);
        for (int i = 0; i < 3; ++i) {
            EXPECT_TRUE(SameResults(run(), first));
            EXPECT_TRUE(SameResults(RunOwn(sizes, *qkv, *dout), first_own));
        }
    }
}

TEST_P(CudaAttention, OfOwnKernelsHasTheSameBitsForASampleAloneAndInABatch) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const AttentionSizes batch{.batch_size = 3, .length = 130, .num_heads = 4, .num_kv_heads = 2, .head_dim = 64};
    AttentionSizes alone = batch;
    alone.batch_size = 1;
    const auto qkv = RandomTensor(Shapes(batch).qkv, dtype(), device, 5, 2.0f);
    const auto dout = RandomTensor(Shapes(batch).out, dtype(), device, 6);
    const Results together = RunOwn(batch, *qkv, *dout);
    for (int64_t b = 0; b < batch.batch_size; ++b) {
        const Results one = RunOwn(alone, *qkv->Slice(b, b + 1), *dout->Slice(b, b + 1));
        EXPECT_TRUE(SameResults(one, {.out = together.out->Slice(b, b + 1),
                                      .lse = together.lse->Slice(b, b + 1),
                                      .dqkv = together.dqkv->Slice(b, b + 1)}))
            << "sample " << b;
    }
}

TEST_P(CudaAttention, DoesNotDependOnLaterPositions) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const AttentionSizes sizes{.batch_size = 1, .length = 192, .num_heads = 2, .num_kv_heads = 1, .head_dim = 64};
    const auto qkv = RandomTensor(Shapes(sizes).qkv, dtype(), device, 7);
    const AttentionOutput before = attention_forward(kCuda, *qkv, HeadsOf(sizes));
    for (const int64_t changed : {191, 150, 128, 127, 64, 63, 1}) {
        SCOPED_TRACE(changed);
        const auto other = CopyTo(*qkv, device);
        fill(kCuda, *other->View({sizes.length, sizes.row_width()})->Slice(changed, sizes.length), 50.0f);
        const AttentionOutput after = attention_forward(kCuda, *other, HeadsOf(sizes));
        const Shape rows{sizes.length, sizes.out_width()};
        EXPECT_TRUE(SameBytes(*before.out->View(rows)->Slice(0, changed), *after.out->View(rows)->Slice(0, changed)));
        EXPECT_FALSE(SameBytes(*before.out, *after.out));
    }
}

TEST_P(CudaAttention, OfNothingIsNothing) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    for (const Shape& shape : {Shape{0, 5, 12}, Shape{2, 0, 12}}) {
        const auto qkv = Tensor::Empty(shape, dtype(), device);
        const AttentionOutput output = attention_forward(kCuda, *qkv, {2, 2});
        EXPECT_EQ(output.out->shape(), (Shape{shape[0], shape[1], 4}));
        EXPECT_EQ(output.lse->shape(), (Shape{shape[0], 2, shape[1]}));
        EXPECT_EQ(attention_backward(kCuda, *output.out, *qkv, *output.out, *output.lse, {2, 2}, true)->shape(), shape);
    }
}

TEST_P(CudaAttention, RefusesHeadsThatAreTooWide) {
    INFINI_SKIP_WITHOUT_CUDA();
    const auto qkv = Tensor::Zeros({1, 2, 3 * 257}, dtype(), MakeCudaDevice(0));
    EXPECT_THROW(attention_forward(kCuda, *qkv, {1, 1}), Error);
}

TEST(CudaAttentionValues, SurviveScoresThatOverflowAnExponential) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    // Scores of position 1: 1e4 and -1e4, then the other way round at position 3.
    const auto qkv = Tensor::FromVector<float>(
        {100.0f, 100.0f, 1.0f, 100.0f, -100.0f, 2.0f, 100.0f, 0.0f, 3.0f, -100.0f, 0.0f, 4.0f}, {1, 4, 3}, device);
    const AttentionOutput output = attention_forward(kCuda, *qkv, {1, 1});
    EXPECT_EQ(output.out->ToVector<float>(), (std::vector<float>{1.0f, 1.0f, 1.0f, 2.0f}));
    EXPECT_EQ(output.lse->ToVector<float>(), (std::vector<float>{1e4f, 1e4f, 1e4f, 1e4f}));
    const auto dout = Tensor::FromVector<float>({1.0f, 1.0f, 1.0f, 1.0f}, {1, 4, 1}, device);
    const std::vector<float> dqkv =
        attention_backward(kCuda, *dout, *qkv, *output.out, *output.lse, {1, 1}, true)->ToVector<float>();
    EXPECT_EQ(dqkv, (std::vector<float>{0.0f, 0.0f, 3.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}));
}

/// cuDNN's both passes, each from what our own forward gives.
void ExpectCudnnIsOwn(const AttentionSizes& sizes, bool must_serve, const Device& device) {
    SCOPED_TRACE(Describe(sizes));
    const Shapes shapes(sizes);
    const DataType dtype = DataType::kBFloat16;
    const auto qkv = RandomTensor(shapes.qkv, dtype, device, 8, 2.0f);
    const auto dout = RandomTensor(shapes.out, dtype, device, 9);
    const Results own = RunOwn(sizes, *qkv, *dout);
    const auto out = Poisoned(shapes.out, dtype, device);
    const auto lse = Poisoned(shapes.lse, DataType::kFloat32, device);
    const bool forward_served = cudnn_attention.forward(sizes, *qkv, *out, *lse);
    EXPECT_TRUE(forward_served || !must_serve);
    if (forward_served) {
        // Weights are rounded to 2^-9 of themselves, and those errors average out.
        ExpectClose(*out, *own.out, kBFloat16Unit, Largest(*own.out) / 128);
        EXPECT_LT(RelativeDifference(*out, *own.out), 1e-2);
        ExpectClose(*lse, *own.lse, 1e-5, 1e-4);
    }
    for (const bool deterministic : {true, false}) {
        SCOPED_TRACE(deterministic ? "deterministic" : "in any order");
        const auto dqkv = Poisoned(shapes.qkv, dtype, device);
        const bool served = cudnn_attention.backward(sizes, *dout, *qkv, *own.out, *own.lse, deterministic, *dqkv);
        EXPECT_TRUE(served || !must_serve);
        if (served) {
            ExpectClose(*dqkv, *own.dqkv, kBFloat16Unit, Largest(*own.dqkv) / 64);
            EXPECT_LT(RelativeDifference(*dqkv, *own.dqkv), 1e-2);
        }
    }
}

TEST(CudnnAttention, IsThatOfOwnKernelsAtSmallSizes) {
    INFINI_SKIP_WITHOUT_CUDA();
    if (cudnn_attention.forward == nullptr) {
        GTEST_SKIP() << "this build has no cuDNN";
    }
    const Device device = MakeCudaDevice(0);
    for (const AttentionHeads heads : {AttentionHeads{4, 4}, {8, 2}, {6, 1}}) {
        for (const int64_t head_dim : {32, 64, 80, 128, 256}) {
            for (const int64_t length : {64, 72, 128, 200}) {
                for (const int64_t batch_size : {1, 3}) {
                    // Usual heads must go there; of the others, those that it has.
                    ExpectCudnnIsOwn({.batch_size = batch_size,
                                      .length = length,
                                      .num_heads = heads.num_heads,
                                      .num_kv_heads = heads.num_kv_heads,
                                      .head_dim = head_dim},
                                     head_dim == 64 || head_dim == 128, device);
                }
            }
        }
    }
}

TEST(CudnnAttention, IsThatOfOwnKernelsAtUsualSizes) {
    INFINI_SKIP_WITHOUT_CUDA();
    if (cudnn_attention.forward == nullptr) {
        GTEST_SKIP() << "this build has no cuDNN";
    }
    const Device device = MakeCudaDevice(0);
    ExpectCudnnIsOwn({.batch_size = 2, .length = 1024, .num_heads = 12, .num_kv_heads = 12, .head_dim = 64}, true,
                     device);
    ExpectCudnnIsOwn({.batch_size = 1, .length = 2048, .num_heads = 32, .num_kv_heads = 8, .head_dim = 64}, true,
                     device);
    ExpectCudnnIsOwn({.batch_size = 1, .length = 1024, .num_heads = 32, .num_kv_heads = 8, .head_dim = 128}, true,
                     device);
}

}  // namespace
}  // namespace infini_train::kernels
