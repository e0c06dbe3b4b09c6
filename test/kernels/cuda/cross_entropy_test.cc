#include "infini_train/include/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostream>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/kernels/fill.h"
#include "test/kernels/cross_entropy_case.h"
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

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::shared_ptr<Tensor> Scalar(float value, const Device& device) {
    return Tensor::FromVector(std::vector<float>{value}, {1}, device);
}

class CudaCrossEntropy : public testing::TestWithParam<std::tuple<DataType, LossCase>> {
 protected:
    CudaCrossEntropy() {
        SetPadding(*logits_, size(), kNaN);
        targets_ = MakeTargets(size(), options_.ignore_index, cpu_);
    }
    DataType dtype() const { return std::get<0>(GetParam()); }
    const LossCase& size() const { return std::get<1>(GetParam()); }

    Device cpu_ = MakeCpuDevice();
    CrossEntropyOptions options_{.vocab_size = size().vocab_size};
    std::shared_ptr<Tensor> logits_ = RandomTensor({size().num_rows, size().padded_size}, dtype(), cpu_, 1, 4.0f);
    std::shared_ptr<Tensor> targets_;
};

TEST_P(CudaCrossEntropy, ForwardIsThatOfTheCpu) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const auto logits = CopyTo(*logits_, device);
    const auto targets = CopyTo(*targets_, device);
    const CrossEntropyOutput wanted = cross_entropy_forward(kCpu, *logits_, *targets_, options_);
    PoisonFreeMemory({size().num_rows}, DataType::kFloat32, device);
    PoisonFreeMemory({1}, DataType::kFloat32, device);
    const CrossEntropyOutput got = cross_entropy_forward(kCuda, *logits, *targets, options_);
    // Sums of exponentials go on in double after a few hundred terms at most: lse is right to a few last places.
    ExpectClose(*got.lse, *wanted.lse, 5e-7, 5e-7);
    // The errors of the rows' lse add up at worst, to as many as there are.
    ExpectClose(*got.loss_sum, *wanted.loss_sum, 5e-7, 5e-7 * static_cast<double>(size().num_rows));
    EXPECT_EQ(got.num_valid->ToVector<int64_t>(), wanted.num_valid->ToVector<int64_t>());

    const CrossEntropyOutput again = cross_entropy_forward(kCuda, *logits, *targets, options_);
    EXPECT_TRUE(SameBytes(*again.lse, *got.lse));
    EXPECT_TRUE(SameBytes(*again.loss_sum, *got.loss_sum));
}

TEST_P(CudaCrossEntropy, BackwardIsThatOfTheCpuOverTheLogitsToo) {
    INFINI_SKIP_WITHOUT_CUDA();
    constexpr float kGrad = 0.5f;
    const Device device = MakeCudaDevice(0);
    const auto logits = CopyTo(*logits_, device);
    const auto targets = CopyTo(*targets_, device);
    const CrossEntropyOutput output = cross_entropy_forward(kCpu, *logits_, *targets_, options_);
    const auto lse = CopyTo(*output.lse, device);
    const auto grad = Scalar(kGrad, device);
    const auto wanted = Tensor::Empty(logits_->shape(), dtype(), cpu_);
    cross_entropy_backward(kCpu, *Scalar(kGrad, cpu_), *logits_, *targets_, *output.lse, options_, *wanted);

    const auto apart = Tensor::Empty(logits_->shape(), dtype(), device);
    fill(kCuda, *apart, kNaN);
    cross_entropy_backward(kCuda, *grad, *logits, *targets, *lse, options_, *apart);
    // One unit in the last place of a bfloat16 is up to 2^-7 of the value; float32 has the errors of two exponentials.
    // p - 1 of the target has the absolute error of p, which is at most 8 / V with these logits.
    const double largest = std::min(1.0, 8.0 / static_cast<double>(size().vocab_size));
    ExpectClose(*apart, *wanted, dtype() == DataType::kBFloat16 ? 0x1p-7 : 5e-6, 4e-7 * largest);
    cross_entropy_backward(kCuda, *grad, *logits, *targets, *lse, options_, *logits);
    EXPECT_TRUE(SameBytes(*logits, *apart));
}

// Rows shorter than a pack; of one pack more or less than all threads of a block read at once (2048 columns in
// bfloat16, 1024 in float32) or in four turns (8192, 4096); aligned rows and others; more rows than the sum has
// threads.
constexpr LossCase kCases[] = {
    {.num_rows = 0, .vocab_size = 3, .padded_size = 4},
    {.num_rows = 1, .vocab_size = 1, .padded_size = 1},
    {.num_rows = 7, .vocab_size = 1, .padded_size = 8},
    {.num_rows = 5, .vocab_size = 7, .padded_size = 7},
    {.num_rows = 7, .vocab_size = 131, .padded_size = 192},
    {.num_rows = 1500, .vocab_size = 257, .padded_size = 264},
    {.num_rows = 20, .vocab_size = 2049, .padded_size = 2056},
    {.num_rows = 4, .vocab_size = 4096, .padded_size = 4096},
    {.num_rows = 4, .vocab_size = 8193, .padded_size = 8200},
    {.num_rows = 4, .vocab_size = 8191, .padded_size = 8195},
    {.num_rows = 33, .vocab_size = 50257, .padded_size = 50304},
};
INSTANTIATE_TEST_SUITE_P(Sizes, CudaCrossEntropy,
                         testing::Combine(testing::Values(DataType::kFloat32, DataType::kBFloat16),
                                          testing::ValuesIn(kCases)));

TEST(CudaCrossEntropyValues, AreThoseByHand) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    // Probabilities 1/4 and 3/4 in each row; the third column is padding.
    const float ln3 = std::log(3.0f);
    const auto logits = Tensor::FromVector<float>({0.0f, ln3, 9.0f, ln3, 0.0f, 9.0f}, {1, 2, 3}, device);
    const auto targets = Tensor::FromVector<int32_t>({1, 1}, {1, 2}, device);
    const CrossEntropyOptions options{.vocab_size = 2};
    const CrossEntropyOutput output = cross_entropy_forward(kCuda, *logits, *targets, options);
    EXPECT_FLOAT_EQ(output.loss_sum->ToVector<float>()[0], std::log(4.0f / 3.0f) + std::log(4.0f));
    EXPECT_EQ(output.num_valid->ToVector<int64_t>()[0], 2);
    cross_entropy_backward(kCuda, *Scalar(2.0f, device), *logits, *targets, *output.lse, options, *logits);
    const std::vector<float> grad = logits->ToVector<float>();
    const std::vector<float> wanted = {0.5f, -0.5f, 0.0f, 1.5f, -1.5f, 0.0f};
    for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(grad[i], wanted[i], 5e-7f) << "element " << i;
    }
}

TEST(CudaCrossEntropyValues, SurviveLogitsThatOverflowAnExponential) {
    INFINI_SKIP_WITHOUT_CUDA();
    const Device device = MakeCudaDevice(0);
    const float infinity = std::numeric_limits<float>::infinity();
    const auto logits = Tensor::FromVector<float>({1000.0f, 0.0f, -1000.0f, -2000.0f, -infinity, 2.0f}, {3, 2}, device);
    const auto targets = Tensor::FromVector<int32_t>({1, 0, 1}, {3}, device);
    const CrossEntropyOptions options{.vocab_size = 2};
    const CrossEntropyOutput output = cross_entropy_forward(kCuda, *logits, *targets, options);
    EXPECT_EQ(output.loss_sum->ToVector<float>()[0], 1000.0f);
    cross_entropy_backward(kCuda, *Scalar(1.0f, device), *logits, *targets, *output.lse, options, *logits);
    EXPECT_EQ(logits->ToVector<float>(), (std::vector<float>{1.0f, -1.0f, 0.0f, 0.0f, 0.0f, 0.0f}));
}

TEST(CudaCrossEntropyValues, ShowANaNInAnyColumnAndNoneOfAnIgnoredRow) {
    INFINI_SKIP_WITHOUT_CUDA();
    constexpr int64_t kVocabSize = 37;
    const Device cpu = MakeCpuDevice();
    const Device device = MakeCudaDevice(0);
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        for (int64_t v = 0; v < kVocabSize; ++v) {
            const auto logits = RandomTensor({2, kVocabSize}, dtype, cpu, 1);
            SetElement(*logits, v, kNaN);
            const auto loss_for = [&](const std::vector<int32_t>& targets) {
                return cross_entropy_forward(kCuda, *CopyTo(*logits, device), *Tensor::FromVector(targets, {2}, device),
                                             {.vocab_size = kVocabSize})
                    .loss_sum->ToVector<float>()[0];
            };
            EXPECT_TRUE(std::isnan(loss_for({3, 3}))) << "column " << v;
            EXPECT_TRUE(std::isfinite(loss_for({-100, 3}))) << "column " << v;
        }
    }
}

TEST(CudaCrossEntropyAlignment, DoesNotChangeTheBits) {
    INFINI_SKIP_WITHOUT_CUDA();
    constexpr int64_t kNumRows = 3;
    constexpr int64_t kWidth = 9000;
    const Device device = MakeCudaDevice(0);
    const auto targets = Tensor::FromVector<int32_t>({0, 8998, -100}, {kNumRows}, device);
    const CrossEntropyOptions options{.vocab_size = kWidth - 1};
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const auto aligned = RandomTensor({kNumRows, kWidth}, dtype, device, 1, 4.0f);
        const auto shifted = Tensor::Empty({kNumRows * kWidth + 1}, dtype, device)
                                 ->Slice(1, kNumRows * kWidth + 1)
                                 ->View({kNumRows, kWidth});
        shifted->CopyFrom(*aligned);
        const CrossEntropyOutput wanted = cross_entropy_forward(kCuda, *aligned, *targets, options);
        const CrossEntropyOutput got = cross_entropy_forward(kCuda, *shifted, *targets, options);
        EXPECT_TRUE(SameBytes(*got.lse, *wanted.lse));
        EXPECT_TRUE(SameBytes(*got.loss_sum, *wanted.loss_sum));
        for (const auto& logits : {aligned, shifted}) {
            cross_entropy_backward(kCuda, *Scalar(1.0f, device), *logits, *targets, *wanted.lse, options, *logits);
        }
        EXPECT_TRUE(SameBytes(*shifted, *aligned));
    }
}

}  // namespace
}  // namespace infini_train::kernels
