#include "infini_train/include/kernels/grad_norm.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/cuda_compare.h"

namespace infini_train::kernels {
namespace {

using test::CopyTo;
using test::ExpectClose;
using test::RandomTensor;
using test::SameBytes;

constexpr DeviceType kCpu = DeviceType::kCPU;
constexpr DeviceType kCuda = DeviceType::kCUDA;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kChunk = 8192;  // elements that a block of the kernel sums
// No element, one, no multiple of a pack, one more than a block, several blocks, empty again, a large weight.
const std::vector<int64_t> kSizes = {0, 1, 7, kChunk, kChunk + 1, 3, 5 * kChunk - 1, 0, 768 * 3072 + 5, 2};
// Both sides sum in double and round once: their sums may fall on two sides of the middle between two floats.
constexpr double kOneUnit = 1.2e-7;

class CudaGradNorm : public testing::Test {
 protected:
    void SetUp() override {
        INFINI_SKIP_WITHOUT_CUDA();
        cuda_ = MakeCudaDevice(0);
    }

    TensorList MakeGrads() const {
        TensorList grads;
        for (size_t i = 0; i < kSizes.size(); ++i) {
            grads.push_back(RandomTensor({kSizes[i]}, DataType::kFloat32, cpu_, i, 3.0f));
        }
        return grads;
    }

    TensorList ToCuda(const TensorList& list) const {
        TensorList copies;
        for (const std::shared_ptr<Tensor>& tensor : list) {
            copies.push_back(CopyTo(*tensor, cuda_));
        }
        return copies;
    }

    static std::shared_ptr<Tensor> Sums(DeviceType type, const Device& device, const TensorList& grads) {
        std::vector<const Tensor*> list;
        for (const std::shared_ptr<Tensor>& grad : grads) {
            list.push_back(grad.get());
        }
        const std::vector<float> poison(grads.size(), kNan);
        const auto sums = Tensor::FromVector(poison, {static_cast<int64_t>(grads.size())}, device);
        squared_sums(type, list, *sums);
        return sums;
    }
    std::shared_ptr<Tensor> CpuSums(const TensorList& grads) const { return Sums(kCpu, cpu_, grads); }
    std::shared_ptr<Tensor> CudaSums(const TensorList& grads) const { return Sums(kCuda, cuda_, grads); }

    static GradScaleOutput Scale(DeviceType type, const Device& device, const std::vector<float>& sums,
                                 int64_t num_valid, float max_norm) {
        return grad_scale(type, *Tensor::FromVector(sums, {static_cast<int64_t>(sums.size())}, device),
                          *Tensor::FromVector(std::vector<int64_t>{num_valid}, {1}, device), max_norm);
    }

    Device cpu_ = MakeCpuDevice();
    Device cuda_;
};

TEST_F(CudaGradNorm, SumsTheSquaresAsTheCpuDoes) {
    const TensorList grads = MakeGrads();
    ExpectClose(*CudaSums(ToCuda(grads)), *CpuSums(grads), kOneUnit, 0.0);
}

TEST_F(CudaGradNorm, SumsMoreGradientsThanOneLaunchTakes) {
    TensorList grads;
    for (int64_t i = 0; i < 2500; ++i) {
        grads.push_back(RandomTensor({i % 5}, DataType::kFloat32, cpu_, static_cast<uint64_t>(i)));
    }
    // One that has several blocks in the second launch.
    grads[1500] = RandomTensor({3 * kChunk + 1}, DataType::kFloat32, cpu_, 1500);
    ExpectClose(*CudaSums(ToCuda(grads)), *CpuSums(grads), kOneUnit, 0.0);
}

TEST_F(CudaGradNorm, SumsAGradientAlikeInAnyCompany) {
    const TensorList grads = ToCuda(MakeGrads());
    const std::shared_ptr<Tensor> together = CudaSums(grads);
    for (size_t i = 0; i < grads.size(); ++i) {
        const auto index = static_cast<int64_t>(i);
        EXPECT_TRUE(SameBytes(*CudaSums({grads[i]}), *together->Slice(index, index + 1))) << i;
    }
    EXPECT_TRUE(SameBytes(*CudaSums(grads), *together));
}

TEST_F(CudaGradNorm, SumsAGradientAlikeAtAnyAddress) {
    const std::shared_ptr<Tensor> grad = CopyTo(*RandomTensor({3 * kChunk + 6}, DataType::kFloat32, cpu_, 1), cuda_);
    const std::shared_ptr<Tensor> wanted = CudaSums({grad});
    for (int64_t offset = 1; offset < 4; ++offset) {
        const auto room = Tensor::Zeros({grad->num_elements() + offset}, DataType::kFloat32, cuda_);
        const std::shared_ptr<Tensor> moved = room->Slice(offset, room->dim(0));
        moved->CopyFrom(*grad);
        EXPECT_TRUE(SameBytes(*CudaSums({moved}), *wanted)) << offset;
    }
}

TEST_F(CudaGradNorm, ShowsElementsThatAreNotFiniteInTheirGradientAlone) {
    for (const float bad : {kNan, kInfinity}) {
        TensorList grads = MakeGrads();
        grads[4]->data<float>()[kChunk] = bad;
        const std::vector<float> sums = CudaSums(ToCuda(grads))->ToVector<float>();
        for (size_t i = 0; i < sums.size(); ++i) {
            EXPECT_EQ(std::isfinite(sums[i]), i != 4) << bad << " " << i;
        }
    }
}

TEST_F(CudaGradNorm, ScalesToTheBitAsTheCpuDoes) {
    // One more than what the kernel loads at once.
    std::vector<float> many;
    for (const double value : test::ToDoubles(*RandomTensor({257}, DataType::kFloat32, cpu_, 2))) {
        many.push_back(static_cast<float>(value * value) * 1e4f);
    }
    for (const std::vector<float>& sums : {std::vector<float>{}, {9.0f, 16.0f}, {1.0f, kNan}, {kInfinity}, many}) {
        for (const int64_t num_valid : {int64_t{0}, int64_t{1}, int64_t{10}, int64_t{524288}}) {
            for (const float max_norm : {0.0f, 0.25f, 0.75f, 1000.0f}) {
                const GradScaleOutput wanted = Scale(kCpu, cpu_, sums, num_valid, max_norm);
                const GradScaleOutput got = Scale(kCuda, cuda_, sums, num_valid, max_norm);
                const auto same = [](const Tensor& a, const Tensor& b) {
                    // A NaN's other bits may differ.
                    const float left = a.ToVector<float>()[0];
                    const float right = b.ToVector<float>()[0];
                    return left == right || (std::isnan(left) && std::isnan(right));
                };
                EXPECT_TRUE(same(*got.norm, *wanted.norm)) << sums.size() << " " << num_valid << " " << max_norm;
                EXPECT_TRUE(same(*got.scale, *wanted.scale)) << sums.size() << " " << num_valid << " " << max_norm;
            }
        }
    }
}

using CudaGradNormDeathTest = CudaGradNorm;

// A forked child cannot use the GPU, so what these calls need is made before them.
TEST_F(CudaGradNormDeathTest, RefusesTensorsThatDoNotFit) {
    const std::shared_ptr<Tensor> values = Tensor::Zeros({1}, DataType::kBFloat16, cuda_);
    const std::shared_ptr<Tensor> elsewhere = Tensor::Zeros({1}, DataType::kFloat32, cpu_);
    const std::shared_ptr<Tensor> sums = Tensor::Zeros({1}, DataType::kFloat32, cuda_);
    const auto sum = [&](const std::vector<const Tensor*>& grads) { squared_sums(kCuda, grads, *sums); };
    EXPECT_DEATH(sum({values.get()}), "squared_sums: a gradient \\[1\\] bfloat16");
    EXPECT_DEATH(sum({elsewhere.get()}), "squared_sums: a gradient \\[1\\] float32 on cpu");
    EXPECT_DEATH(sum({}), "squared_sums: \\[1\\] float32 for 0 gradients");
    EXPECT_DEATH(grad_scale(kCuda, *sums, *sums, 0.0f), "num_valid \\[1\\] float32");
}

TEST_F(CudaGradNormDeathTest, TrapsAtANegativeNumberOfTargets) {
    // The child runs this test anew, with a GPU of its own.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto scale = [&] {
        try {
            Scale(kCuda, cuda_, {1.0f}, -1, 0.0f).norm->ToVector<float>();
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
            std::_Exit(1);
        }
        std::_Exit(0);
    };
    EXPECT_EXIT(scale(), testing::ExitedWithCode(1), "CUDA: ");
}

}  // namespace
}  // namespace infini_train::kernels
