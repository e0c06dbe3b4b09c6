#include "infini_train/include/autograd/cross_entropy.h"

#include "infini_train/include/autograd/function.h"

namespace infini_train::autograd {
namespace {

class CrossEntropyFunction : public Function {
 public:
    explicit CrossEntropyFunction(const kernels::CrossEntropyOptions& options) : options_(options) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [logits, targets] = Unpack<2>(inputs);
        auto [loss_sum, num_valid, lse] =
            kernels::cross_entropy_forward(logits->device().type, *logits, *targets, options_);
        Save({logits, targets, lse});
        return {loss_sum, num_valid};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dloss_sum, dnum_valid] = Unpack<2>(grad_outputs);
        const auto& [logits, targets, lse] = Unpack<3>(saved());
        // The logits are the largest tensor of a step: where nobody else holds them, their gradient takes their place.
        const std::shared_ptr<Tensor> dlogits =
            logits->owns_storage_alone() ? logits : Tensor::Empty(logits->shape(), logits->dtype(), logits->device());
        kernels::cross_entropy_backward(logits->device().type, *dloss_sum, *logits, *targets, *lse, options_, *dlogits);
        return {dlogits, nullptr};
    }

 private:
    kernels::CrossEntropyOptions options_;
};

}  // namespace

CrossEntropyLoss CrossEntropy(const std::shared_ptr<Tensor>& logits, const std::shared_ptr<Tensor>& targets,
                              const kernels::CrossEntropyOptions& options) {
    const TensorList outputs = std::make_shared<CrossEntropyFunction>(options)->Apply({logits, targets});
    return {.loss_sum = outputs[0], .num_valid = outputs[1]};
}

}  // namespace infini_train::autograd
