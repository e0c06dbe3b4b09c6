#include "infini_train/include/autograd/embedding.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/embedding.h"

namespace infini_train::autograd {
namespace {

constexpr size_t kWeight = 1;

class EmbeddingFunction : public Function {
 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [ids, weight] = Unpack<2>(inputs);
        Save({ids});
        return {kernels::embedding_forward(ids->device().type, *ids, *weight)};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        const auto& [ids] = Unpack<1>(saved());
        AddWeightGrad(kWeight, [dy = dy, ids = ids](const Tensor::GradSlot& slot) {
            kernels::embedding_backward(dy->device().type, *dy, *ids, *slot.grad, slot.accumulate);
        });
        return {nullptr, nullptr};
    }
};

}  // namespace

std::shared_ptr<Tensor> Embedding(const std::shared_ptr<Tensor>& ids, const std::shared_ptr<Tensor>& weight) {
    return std::make_shared<EmbeddingFunction>()->Apply({ids, weight})[0];
}

}  // namespace infini_train::autograd
