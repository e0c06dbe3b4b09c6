#include "infini_train/include/autograd/cross_entropy.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/function.h"
#include "test/support/grad_check.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

constexpr int64_t kVocabSize = 5;
constexpr int64_t kPaddedSize = 6;
constexpr kernels::CrossEntropyOptions kOptions{.vocab_size = kVocabSize};

/// A copy of its input, whose backward tells where the gradient lay.
class CopyAndSpy : public Function {
 public:
    explicit CopyAndSpy(const void** grad_data) : grad_data_(grad_data) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        auto copy = Tensor::Empty(inputs[0]->shape(), inputs[0]->dtype(), inputs[0]->device());
        copy->CopyFrom(*inputs[0]);
        return {copy};
    }
    TensorList Backward(const TensorList& grad_outputs) override {
        *grad_data_ = grad_outputs[0]->raw_data();
        return grad_outputs;
    }

 private:
    const void** grad_data_;
};

class CrossEntropyTest : public testing::Test {
 protected:
    CrossEntropyTest() { leaf_->set_requires_grad(true); }

    Device device_ = MakeCpuDevice();
    std::shared_ptr<Tensor> leaf_ = test::RandomTensor({4, kPaddedSize}, DataType::kFloat32, device_, 1);
    std::shared_ptr<Tensor> targets_ = Tensor::FromVector<int32_t>({1, -100, 4, 0}, {4}, device_);
    const void* grad_data_ = nullptr;
};

TEST_F(CrossEntropyTest, HasTheGradientOfFiniteDifferences) {
    test::CheckGradients([](const TensorList& inputs) { return CrossEntropy(inputs[0], inputs[1], kOptions).loss_sum; },
                         {leaf_, targets_});
}

TEST_F(CrossEntropyTest, CountsValidTargetsOutsideTheTape) {
    const CrossEntropyLoss loss = CrossEntropy(leaf_, targets_, kOptions);
    EXPECT_EQ(loss.num_valid->ToVector<int64_t>()[0], 3);
    EXPECT_TRUE(loss.loss_sum->requires_grad());
    EXPECT_FALSE(loss.num_valid->requires_grad());
}

TEST_F(CrossEntropyTest, WritesOverLogitsThatNobodyElseHolds) {
    std::shared_ptr<Tensor> logits = std::make_shared<CopyAndSpy>(&grad_data_)->Apply({leaf_})[0];
    const void* const logits_data = logits->raw_data();
    const std::shared_ptr<Tensor> loss = CrossEntropy(logits, targets_, kOptions).loss_sum;
    logits.reset();
    Backward({loss}, {nullptr});
    EXPECT_EQ(grad_data_, logits_data);
}

TEST_F(CrossEntropyTest, LeavesLogitsThatSomebodyHolds) {
    const std::shared_ptr<Tensor> logits = std::make_shared<CopyAndSpy>(&grad_data_)->Apply({leaf_})[0];
    const std::shared_ptr<Tensor> loss = CrossEntropy(logits, targets_, kOptions).loss_sum;
    Backward({loss}, {nullptr});
    EXPECT_NE(grad_data_, logits->raw_data());
    EXPECT_TRUE(test::SameBits(*logits, *leaf_));
}

TEST_F(CrossEntropyTest, GivesTheSameGradientEitherWay) {
    const auto grad = [&](bool hold) {
        std::shared_ptr<Tensor> logits = std::make_shared<CopyAndSpy>(&grad_data_)->Apply({leaf_})[0];
        const std::shared_ptr<Tensor> loss = CrossEntropy(logits, targets_, kOptions).loss_sum;
        if (!hold) {
            logits.reset();
        }
        leaf_->ClearGrad();
        Backward({loss}, {nullptr});
        return leaf_->grad()->ToVector<float>();
    };
    EXPECT_EQ(grad(true), grad(false));
}

}  // namespace
}  // namespace infini_train::autograd
