#pragma once

#include "infini_train/include/kernels/cross_entropy.h"
#include "infini_train/include/nn/module.h"

namespace infini_train::nn {

/// Cross-entropy of a language model, as a sum and a count: the mean over many micro-batches is the quotient of their
/// sums. Forward: {logits [..., padded vocabulary], targets int32 [...]} -> {loss_sum float32 [1], num_valid int64 [1]}
class CrossEntropyLoss : public Module {
 public:
    /// vocab_size 0: every column of the logits is a token.
    using Options = kernels::CrossEntropyOptions;
    explicit CrossEntropyLoss(const Options& options) : options_(options) {}

    TensorList Forward(const TensorList& inputs) override;

 private:
    Options options_;
};

}  // namespace infini_train::nn
