#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <ostream>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/kernels/layer_norm.h"
#include "infini_train/include/kernels/rms_norm.h"
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
constexpr float kEps = 1e-5f;

struct NormCase {
    int64_t num_rows;
    int64_t num_columns;
};

void PrintTo(const NormCase& c, std::ostream* os) {
    *os << "N " << c.num_rows << " C " << c.num_columns;
}

/// The operands of both norms, with the same values on a device each.
struct Operands {
    Operands(const NormCase& size, DataType dtype, const Device& device)
        : x(RandomTensor({size.num_rows, size.num_columns}, dtype, device, 1, 2.0f)),
          branch(RandomTensor({size.num_rows, size.num_columns}, dtype, device, 2, 2.0f)),
          weight(RandomTensor({size.num_columns}, dtype, device, 3, 2.0f)),
          bias(RandomTensor({size.num_columns}, dtype, device, 4, 2.0f)),
          dy(RandomTensor({size.num_rows, size.num_columns}, dtype, device, 5, 2.0f)),
          dsum(RandomTensor({size.num_rows, size.num_columns}, dtype, device, 6, 2.0f)) {}
    Operands(const Operands& from, const Device& device)
        : x(CopyTo(*from.x, device)),
          branch(CopyTo(*from.branch, device)),
          weight(CopyTo(*from.weight, device)),
          bias(CopyTo(*from.bias, device)),
          dy(CopyTo(*from.dy, device)),
          dsum(CopyTo(*from.dsum, device)) {}

    std::shared_ptr<Tensor> x, branch, weight, bias, dy, dsum;
};

/// What two float32 computations of a row may differ by, before it is rounded: the last places of terms that a norm
/// scales by rstd, which is large in rows of few columns.
double RowError(const Tensor& rstd) {
    double largest = 0.0;
    for (const double value : ToDoubles(rstd)) {
        largest = std::max(largest, value);
    }
    return 1e-5 * (1.0 + largest);
}

/// A bfloat16 may be rounded to either neighbour: one unit in the last place is up to 2^-7 of the value.
void ExpectRows(const Tensor& got, const Tensor& wanted, const Tensor& rstd) {
    const double relative = wanted.dtype() == DataType::kBFloat16 ? 0x1p-7 : 1e-5;
    ExpectClose(got, wanted, relative, RowError(rstd));
}

/// A sum over rows, float32 for both dtypes: rounding errors of random sign grow with the root of their number.
void ExpectSumOverRows(const Tensor& got, const Tensor& wanted, const Tensor& rstd) {
    const double num_rows = static_cast<double>(rstd.num_elements());
    ExpectClose(got, wanted, 1e-5, 0.2 * RowError(rstd) * (1.0 + std::sqrt(num_rows)));
}

/// The same values one element after a boundary of 16 bytes.
std::shared_ptr<Tensor> Misaligned(const Tensor& x) {
    const auto room = Tensor::Empty({x.num_elements() + 1}, x.dtype(), x.device());
    const auto view = room->Slice(1, x.num_elements() + 1)->View(x.shape());
    view->CopyFrom(x);
    return view;
}

class CudaNorm : public testing::TestWithParam<std::tuple<DataType, NormCase>> {
 protected:
    DataType dtype() const { return std::get<0>(GetParam()); }
    NormCase size() const { return std::get<1>(GetParam()); }

    /// Whatever the next kernel makes holds NaN until it is written.
    void Poison(const Device& device) const {
        PoisonFreeMemory({size().num_rows, size().num_columns}, dtype(), device);
        PoisonFreeMemory({size().num_rows}, DataType::kFloat32, device);
        PoisonFreeMemory({size().num_columns}, DataType::kFloat32, device);
    }
};

TEST_P(CudaNorm, LayerNormForwardIsThatOfTheCpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const Operands on_cpu(size(), dtype(), MakeCpuDevice());
    const Operands on_gpu(on_cpu, device);
    for (const bool has_branch : {false, true}) {
        SCOPED_TRACE(has_branch);
        const Tensor* const branch = has_branch ? on_gpu.branch.get() : nullptr;
        const LayerNormOutput wanted = layer_norm_forward(kCpu, *on_cpu.x, has_branch ? on_cpu.branch.get() : nullptr,
                                                          *on_cpu.weight, *on_cpu.bias, kEps);
        Poison(device);
        const LayerNormOutput got = layer_norm_forward(kCuda, *on_gpu.x, branch, *on_gpu.weight, *on_gpu.bias, kEps);
        ExpectRows(*got.y, *wanted.y, *wanted.rstd);
        ExpectClose(*got.mean, *wanted.mean, 1e-5, 1e-6);
        ExpectClose(*got.rstd, *wanted.rstd, 1e-5, 0.0);
        ASSERT_EQ(got.sum != nullptr, has_branch);
        if (has_branch) {
            EXPECT_TRUE(SameBytes(*got.sum, *wanted.sum));
        }
        const LayerNormOutput again =
            layer_norm_forward(kCuda, has_branch ? *got.sum : *on_gpu.x, nullptr, *on_gpu.weight, *on_gpu.bias, kEps);
        EXPECT_TRUE(SameBytes(*again.y, *got.y)) << "of the sum alone";
        EXPECT_TRUE(SameBytes(*again.mean, *got.mean));
        EXPECT_TRUE(SameBytes(*again.rstd, *got.rstd));
    }
}

TEST_P(CudaNorm, LayerNormBackwardIsThatOfTheCpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const Operands on_cpu(size(), dtype(), MakeCpuDevice());
    const Operands on_gpu(on_cpu, device);
    const LayerNormOutput output = layer_norm_forward(kCpu, *on_cpu.x, nullptr, *on_cpu.weight, *on_cpu.bias, kEps);
    const auto mean = CopyTo(*output.mean, device);
    const auto rstd = CopyTo(*output.rstd, device);
    for (const bool has_dsum : {false, true}) {
        SCOPED_TRACE(has_dsum);
        const Tensor* const dsum = has_dsum ? on_gpu.dsum.get() : nullptr;
        const LayerNormGrad wanted = layer_norm_backward(kCpu, *on_cpu.dy, has_dsum ? on_cpu.dsum.get() : nullptr,
                                                         *on_cpu.x, *on_cpu.weight, *output.mean, *output.rstd);
        Poison(device);
        const LayerNormGrad got = layer_norm_backward(kCuda, *on_gpu.dy, dsum, *on_gpu.x, *on_gpu.weight, *mean, *rstd);
        ExpectRows(*got.dx, *wanted.dx, *output.rstd);
        ExpectSumOverRows(*got.dweight, *wanted.dweight, *output.rstd);
        ExpectSumOverRows(*got.dbias, *wanted.dbias, *output.rstd);
        const LayerNormGrad again =
            layer_norm_backward(kCuda, *on_gpu.dy, dsum, *on_gpu.x, *on_gpu.weight, *mean, *rstd);
        EXPECT_TRUE(SameBytes(*again.dx, *got.dx));
        EXPECT_TRUE(SameBytes(*again.dweight, *got.dweight));
        EXPECT_TRUE(SameBytes(*again.dbias, *got.dbias));
    }
}

TEST_P(CudaNorm, RmsNormForwardIsThatOfTheCpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const Operands on_cpu(size(), dtype(), MakeCpuDevice());
    const Operands on_gpu(on_cpu, device);
    for (const bool has_branch : {false, true}) {
        SCOPED_TRACE(has_branch);
        const Tensor* const branch = has_branch ? on_gpu.branch.get() : nullptr;
        const RmsNormOutput wanted =
            rms_norm_forward(kCpu, *on_cpu.x, has_branch ? on_cpu.branch.get() : nullptr, *on_cpu.weight, kEps);
        Poison(device);
        const RmsNormOutput got = rms_norm_forward(kCuda, *on_gpu.x, branch, *on_gpu.weight, kEps);
        ExpectRows(*got.y, *wanted.y, *wanted.rstd);
        ExpectClose(*got.rstd, *wanted.rstd, 1e-5, 0.0);
        ASSERT_EQ(got.sum != nullptr, has_branch);
        if (has_branch) {
            EXPECT_TRUE(SameBytes(*got.sum, *wanted.sum));
        }
        const RmsNormOutput again =
            rms_norm_forward(kCuda, has_branch ? *got.sum : *on_gpu.x, nullptr, *on_gpu.weight, kEps);
        EXPECT_TRUE(SameBytes(*again.y, *got.y)) << "of the sum alone";
        EXPECT_TRUE(SameBytes(*again.rstd, *got.rstd));
    }
}

TEST_P(CudaNorm, RmsNormBackwardIsThatOfTheCpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const Operands on_cpu(size(), dtype(), MakeCpuDevice());
    const Operands on_gpu(on_cpu, device);
    const RmsNormOutput output = rms_norm_forward(kCpu, *on_cpu.x, nullptr, *on_cpu.weight, kEps);
    const auto rstd = CopyTo(*output.rstd, device);
    for (const bool has_dsum : {false, true}) {
        SCOPED_TRACE(has_dsum);
        const Tensor* const dsum = has_dsum ? on_gpu.dsum.get() : nullptr;
        const RmsNormGrad wanted = rms_norm_backward(kCpu, *on_cpu.dy, has_dsum ? on_cpu.dsum.get() : nullptr,
                                                     *on_cpu.x, *on_cpu.weight, *output.rstd);
        Poison(device);
        const RmsNormGrad got = rms_norm_backward(kCuda, *on_gpu.dy, dsum, *on_gpu.x, *on_gpu.weight, *rstd);
        ExpectRows(*got.dx, *wanted.dx, *output.rstd);
        ExpectSumOverRows(*got.dweight, *wanted.dweight, *output.rstd);
        const RmsNormGrad again = rms_norm_backward(kCuda, *on_gpu.dy, dsum, *on_gpu.x, *on_gpu.weight, *rstd);
        EXPECT_TRUE(SameBytes(*again.dx, *got.dx));
        EXPECT_TRUE(SameBytes(*again.dweight, *got.dweight));
    }
}

// A warp a row up to 1024 columns, then 2, 4, 8, and beyond 8192 a row that is read again; rows that the blocks of the
// backward have once, several times (264 blocks, of up to 16 rows at a time), and not all of them the last time.
INSTANTIATE_TEST_SUITE_P(
    Sizes, CudaNorm,
    testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                     testing::Values(NormCase{0, 8}, NormCase{1, 1}, NormCase{7, 7}, NormCase{5, 8}, NormCase{4300, 33},
                                     NormCase{3, 257}, NormCase{1327, 768}, NormCase{5, 1000}, NormCase{9, 1024},
                                     NormCase{3, 1032}, NormCase{533, 2048}, NormCase{5, 2056}, NormCase{3, 4095},
                                     NormCase{3, 4104}, NormCase{267, 8192}, NormCase{2, 8199}, NormCase{266, 8200},
                                     NormCase{4096, 768})));

TEST(CudaNormAlignment, DoesNotChangeTheBits) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const int64_t num_columns : {768, 2048, 8192, 8200}) {
            SCOPED_TRACE(num_columns);
            const Operands all(NormCase{.num_rows = 270, .num_columns = num_columns}, dtype, device);
            const auto x = Misaligned(*all.x);
            const auto branch = Misaligned(*all.branch);
            const auto dy = Misaligned(*all.dy);
            const auto dsum = Misaligned(*all.dsum);
            const auto wanted = layer_norm_forward(kCuda, *all.x, all.branch.get(), *all.weight, *all.bias, kEps);
            const auto got = layer_norm_forward(kCuda, *x, branch.get(), *all.weight, *all.bias, kEps);
            EXPECT_TRUE(SameBytes(*got.sum, *wanted.sum));
            EXPECT_TRUE(SameBytes(*got.y, *wanted.y));
            EXPECT_TRUE(SameBytes(*got.mean, *wanted.mean));
            EXPECT_TRUE(SameBytes(*got.rstd, *wanted.rstd));
            const auto wanted_grad =
                layer_norm_backward(kCuda, *all.dy, all.dsum.get(), *all.x, *all.weight, *wanted.mean, *wanted.rstd);
            const auto got_grad =
                layer_norm_backward(kCuda, *dy, dsum.get(), *x, *all.weight, *wanted.mean, *wanted.rstd);
            EXPECT_TRUE(SameBytes(*got_grad.dx, *wanted_grad.dx));
            EXPECT_TRUE(SameBytes(*got_grad.dweight, *wanted_grad.dweight));
            EXPECT_TRUE(SameBytes(*got_grad.dbias, *wanted_grad.dbias));
        }
    }
}

}  // namespace
}  // namespace infini_train::kernels
