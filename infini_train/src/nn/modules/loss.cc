#include "infini_train/include/nn/modules/loss.h"

#include "infini_train/include/autograd/cross_entropy.h"
#include "infini_train/include/autograd/function.h"

namespace infini_train::nn {

TensorList CrossEntropyLoss::Forward(const TensorList& inputs) {
    const auto& [logits, targets] = autograd::Unpack<2>(inputs);
    Options options = options_;
    if (options.vocab_size == 0) {
        options.vocab_size = logits->dim(-1);
    }
    const autograd::CrossEntropyLoss loss = autograd::CrossEntropy(logits, targets, options);
    return {loss.loss_sum, loss.num_valid};
}

}  // namespace infini_train::nn
