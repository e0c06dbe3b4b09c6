#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/cross_entropy.h"

namespace infini_train::autograd {

/// kernels/cross_entropy.h. loss_sum can be differentiated; num_valid cannot. The backward writes over the logits when
/// nobody else holds them.
struct CrossEntropyLoss {
    std::shared_ptr<Tensor> loss_sum;   // [1], float32
    std::shared_ptr<Tensor> num_valid;  // [1], int64
};
CrossEntropyLoss CrossEntropy(const std::shared_ptr<Tensor>& logits, const std::shared_ptr<Tensor>& targets,
                              const kernels::CrossEntropyOptions& options);

}  // namespace infini_train::autograd
