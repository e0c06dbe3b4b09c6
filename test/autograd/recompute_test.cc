#include "infini_train/include/autograd/recompute.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/add.h"
#include "infini_train/include/autograd/cross_entropy.h"
#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/gelu.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/autograd/linear.h"
#include "test/support/random_tensor.h"

namespace infini_train::autograd {
namespace {

using test::RandomTensor;
using test::SameBits;

class RecomputeTest : public testing::Test {
 protected:
    std::shared_ptr<Tensor> Leaf(const Shape& shape, DataType dtype, uint64_t seed) const {
        auto leaf = RandomTensor(shape, dtype, device_, seed);
        leaf->set_requires_grad(true);
        return leaf;
    }

    Device device_ = MakeCpuDevice();
};

TEST_F(RecomputeTest, GivesTheBitsOfPlainFunctionsAndPutsOffWeightGradients) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        const auto grads = [&](bool recompute) {
            const auto x = Leaf({3, 5}, dtype, 1);
            const auto weight = Leaf({5, 5}, dtype, 2);
            const auto layer = [&weight](const TensorList& inputs) -> TensorList {
                return {Add(inputs[0], Linear(Gelu(inputs[0]), weight, nullptr))};
            };
            // Not the leaf itself: its two gradients would be added in float32, those of an input in its dtype.
            const std::shared_ptr<Tensor> hidden = Gelu(x);
            const TensorList y = recompute ? Recompute(layer, {hidden}) : layer({hidden});
            WeightGradQueue queue;
            Backward(y, {RandomTensor({3, 5}, dtype, device_, 3)}, &queue);
            EXPECT_EQ(queue.size(), 1u);
            EXPECT_EQ(weight->grad(), nullptr);
            queue.Run();
            return TensorList{y[0], x->grad(), weight->grad()};
        };
        const TensorList plain = grads(false);
        const TensorList again = grads(true);
        for (size_t i = 0; i < plain.size(); ++i) {
            EXPECT_TRUE(SameBits(*plain[i], *again[i])) << Name(dtype) << " result " << i;
        }
    }
}

TEST_F(RecomputeTest, KeepsOnlyItsInputs) {
    const auto x = Leaf({100, 100}, DataType::kFloat32, 1);
    const int64_t before = device_.allocator->stats().live_bytes;
    const TensorList y =
        Recompute([](const TensorList& inputs) { return TensorList{Gelu(Gelu(Gelu(inputs[0])))}; }, {x});
    EXPECT_EQ(device_.allocator->stats().live_bytes, 2 * before) << "y alone is new, as large as x";
}

TEST_F(RecomputeTest, AnOutputThatNothingDependsOnAddsNothing) {
    // Of one element: where the engine takes a null gradient for 1.
    const auto x = Leaf({1}, DataType::kFloat32, 1);
    const auto both = [](const TensorList& inputs) { return TensorList{Add(inputs[0], inputs[0]), Gelu(inputs[0])}; };
    Backward({Recompute(both, {x})[0]}, {nullptr});
    EXPECT_EQ(x->grad()->ToVector<float>(), (std::vector<float>{2.0f}));
}

TEST_F(RecomputeTest, PassesOnAnOutputThatHasNoGradient) {
    const auto targets = Tensor::FromVector<int32_t>({1, -100}, {2}, device_);
    const auto grad = [&](bool recompute) {
        const auto logits = Leaf({2, 3}, DataType::kFloat32, 1);
        const auto loss_of = [&targets](const TensorList& inputs) {
            const CrossEntropyLoss loss = CrossEntropy(inputs[0], targets, {.vocab_size = 3});
            return TensorList{loss.loss_sum, loss.num_valid};
        };
        const TensorList outputs = recompute ? Recompute(loss_of, {logits}) : loss_of({logits});
        EXPECT_EQ(outputs[1]->ToVector<int64_t>()[0], 1);
        Backward({outputs[0]}, {nullptr});
        return logits->grad()->ToVector<float>();
    };
    EXPECT_EQ(grad(true), grad(false));
}

using RecomputeDeathTest = RecomputeTest;

TEST_F(RecomputeDeathTest, RefusesABackwardPassWithoutGradMode) {
    const auto x = Leaf({1}, DataType::kFloat32, 1);
    const TensorList y = Recompute([](const TensorList& inputs) { return TensorList{Gelu(inputs[0])}; }, {x});
    const NoGradGuard no_grad;
    EXPECT_DEATH(Backward(y, {nullptr}), "without grad mode");
}

TEST_F(RecomputeDeathTest, RefusesAFunctionThatReturnsItsInput) {
    const auto x = Leaf({1}, DataType::kFloat32, 1);
    const ForwardFunction identity = [](const TensorList& inputs) { return inputs; };
    EXPECT_DEATH(Recompute(identity, {x}), "leaf cannot be the output");
    EXPECT_DEATH(Recompute(identity, {Gelu(x)}), "another one computed");
}

}  // namespace
}  // namespace infini_train::autograd
