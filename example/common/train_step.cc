#include "example/common/train_step.h"

#include <algorithm>
#include <vector>

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/optimizer/grad_scale.h"

namespace infini_train {
namespace {

/// Sums over micro-batches, in their order.
struct LossTotal {
    double loss_sum = 0.0;
    int64_t num_valid = 0;

    void Add(const Tensor& sum, const Tensor& count) {
        loss_sum += static_cast<double>(sum.ToVector<float>()[0]);
        num_valid += count.ToVector<int64_t>()[0];
    }
    float mean() const { return num_valid == 0 ? 0.0f : static_cast<float>(loss_sum / static_cast<double>(num_valid)); }
};

TensorList Loss(const Model& model, const data::TokenDataset& dataset, int64_t first_row, const BatchShape& shape) {
    const auto num_tokens = static_cast<size_t>(shape.batch_size * shape.sequence_length);
    std::vector<int32_t> inputs(num_tokens);
    std::vector<int32_t> targets(num_tokens);
    dataset.ReadRows(first_row, shape.batch_size, inputs.data(), targets.data());
    const Device& device = model.net->Parameters().front()->device();
    const Shape ids_shape = {shape.batch_size, shape.sequence_length};
    TensorList logits = model.net->Forward({Tensor::FromVector(inputs, ids_shape, device)});
    logits.push_back(Tensor::FromVector(targets, ids_shape, device));
    return nn::CrossEntropyLoss({.vocab_size = model.vocab_size}).Forward(logits);
}

}  // namespace

StepResult TrainStep(const Model& model, const data::TokenDataset& dataset, const BatchShape& shape, int64_t step,
                     float max_norm, optimizers::Optimizer& optimizer) {
    optimizer.ClearGrads();
    for (const nn::TiedParameters& tie : model.net->Ties()) {
        tie.alias->ClearGrad();
    }
    model.dropout_position->training = true;
    model.dropout_position->step = static_cast<uint64_t>(step);
    LossTotal total;
    const int64_t first_row = dataset.FirstRowOfStep(step, shape.rows_per_step());
    for (int m = 0; m < shape.num_microbatches; ++m) {
        const int64_t first_sample = m * shape.batch_size;
        model.dropout_position->first_sample = static_cast<uint64_t>(first_sample);
        const TensorList loss = Loss(model, dataset, first_row + first_sample, shape);
        autograd::Backward({loss[0]}, {nullptr});
        total.Add(*loss[0], *loss[1]);
    }
    nn::ReduceTiedGrads(*model.net);
    const TensorList& parameters = optimizer.parameters();
    const std::shared_ptr<Tensor> num_valid =
        Tensor::FromVector(std::vector<int64_t>{total.num_valid}, {1}, parameters.front()->device());
    const optimizers::GradScale grad = optimizers::ComputeGradScale(parameters, *num_valid, max_norm);
    optimizer.Step(*grad.scale);
    return {.loss = total.mean(), .grad_norm = grad.norm->ToVector<float>()[0]};
}

float ValidationLoss(const Model& model, const data::TokenDataset& dataset, const BatchShape& shape, int num_batches) {
    const autograd::NoGradGuard no_grad;
    model.dropout_position->training = false;
    LossTotal total;
    const int64_t available = dataset.num_rows() / shape.batch_size;
    for (int64_t m = 0; m < std::min<int64_t>(num_batches, available); ++m) {
        const TensorList loss = Loss(model, dataset, m * shape.batch_size, shape);
        total.Add(*loss[0], *loss[1]);
    }
    return total.mean();
}

}  // namespace infini_train
