#pragma once

#include <memory>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/dropout.h"
#include "infini_train/include/optimizer/optimizer.h"

// What a pipeline must compute, as the plainest loop: one rank, the whole model, one micro-batch after the other. It
// shares no code with nn/parallel.

namespace infini_train::test {

/// One rank's whole model, and what computes with it.
struct ReferenceModel {
    std::shared_ptr<nn::Module> net = nullptr;
    std::shared_ptr<nn::DropoutPosition> position = nullptr;
    std::shared_ptr<nn::Module> loss_fn = nullptr;  // {output, target} -> {sum, count}
};

struct ReferenceResult {
    float loss = 0.0f;
    float grad_norm = 0.0f;  // before clipping
};

/// One optimizer step over the rows, cut into micro-batches.
ReferenceResult ReferenceStep(const ReferenceModel& model, const std::shared_ptr<Tensor>& inputs,
                              const std::shared_ptr<Tensor>& targets, int num_microbatches, float max_norm,
                              optimizers::Optimizer& optimizer);

/// The mean loss without dropout; nothing learned.
float ReferenceEvalStep(const ReferenceModel& model, const std::shared_ptr<Tensor>& inputs,
                        const std::shared_ptr<Tensor>& targets, int num_microbatches);

}  // namespace infini_train::test
