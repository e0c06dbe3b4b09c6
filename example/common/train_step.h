#pragma once

#include <cstdint>
#include <memory>

#include "example/common/model.h"
#include "infini_train/include/core/tensor.h"
#include "infini_train/include/data/token_dataset.h"
#include "infini_train/include/optimizer/optimizer.h"

namespace infini_train {

/// Rows of a micro-batch and how many of those a step has.
struct BatchShape {
    int64_t batch_size = 0;
    int64_t sequence_length = 0;
    int num_microbatches = 0;

    int64_t rows_per_step() const { return batch_size * num_microbatches; }
    int64_t tokens_per_step() const { return rows_per_step() * sequence_length; }
};

/// The rows of a step.
struct StepBatch {
    std::shared_ptr<Tensor> inputs;   // [rows, T], int32
    std::shared_ptr<Tensor> targets;  // [rows, T], int32: the next token, or -100 for none
};
StepBatch ReadStep(const data::TokenDataset& dataset, const BatchShape& shape, int64_t step, const Device& device);

struct StepResult {
    float loss = 0.0f;       // sum over all valid targets of the step / their count
    float grad_norm = 0.0f;  // global L2 norm of the gradient of that loss, before clipping
};

/// One optimizer step over micro-batches of batch_size rows, which divides the rows: gradients of the summed loss
/// accumulate over the micro-batches in their order, tied ones are added, and the optimizer takes them times min(1,
/// max_norm / (norm + 1e-6)) / number of valid targets. step counts from 0: dropout depends on it.
StepResult TrainStep(const Model& model, const StepBatch& batch, int64_t batch_size, int64_t step, float max_norm,
                     optimizers::Optimizer& optimizer);

/// Mean loss over the first num_batches micro-batches of a dataset, or as many as it has.
float ValidationLoss(const Model& model, const data::TokenDataset& dataset, const BatchShape& shape, int num_batches);

}  // namespace infini_train
