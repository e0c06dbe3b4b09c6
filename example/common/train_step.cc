#include "example/common/train_step.h"

#include <algorithm>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/nn/modules/loss.h"
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

StepBatch ReadRows(const data::TokenDataset& dataset, int64_t first_row, int64_t num_rows, const Device& device) {
    const Shape shape = {num_rows, dataset.sequence_length()};
    std::vector<int32_t> inputs(static_cast<size_t>(NumElements(shape)));
    std::vector<int32_t> targets(inputs.size());
    dataset.ReadRows(first_row, num_rows, inputs.data(), targets.data());
    return {.inputs = Tensor::FromVector(inputs, shape, device), .targets = Tensor::FromVector(targets, shape, device)};
}

/// {loss_sum, num_valid}
TensorList Loss(const Model& model, const std::shared_ptr<Tensor>& inputs, const std::shared_ptr<Tensor>& targets) {
    TensorList logits = model.net->Forward({inputs});
    logits.push_back(targets);
    return nn::CrossEntropyLoss({.vocab_size = model.vocab_size}).Forward(logits);
}

}  // namespace

StepBatch ReadStep(const data::TokenDataset& dataset, const BatchShape& shape, int64_t step, const Device& device) {
    const int64_t num_rows = shape.rows_per_step();
    return ReadRows(dataset, dataset.FirstRowOfStep(step, num_rows), num_rows, device);
}

StepResult TrainStep(const Model& model, const StepBatch& batch, int64_t batch_size, int64_t step, float max_norm,
                     optimizers::Optimizer& optimizer) {
    const int64_t num_rows = batch.inputs->dim(0);
    CHECK(batch_size > 0 && num_rows % batch_size == 0) << num_rows << " rows in micro-batches of " << batch_size;
    optimizer.ClearGrads();
    for (const nn::TiedParameters& tie : model.net->Ties()) {
        tie.alias->ClearGrad();
    }
    model.dropout_position->training = true;
    model.dropout_position->step = static_cast<uint64_t>(step);
    LossTotal total;
    for (int64_t row = 0; row < num_rows; row += batch_size) {
        model.dropout_position->first_sample = static_cast<uint64_t>(row);
        const TensorList loss =
            Loss(model, batch.inputs->Slice(row, row + batch_size), batch.targets->Slice(row, row + batch_size));
        autograd::Backward({loss[0]}, {nullptr});
        total.Add(*loss[0], *loss[1]);
    }
    nn::ReduceTiedGrads(*model.net);
    const TensorList& parameters = optimizer.parameters();
    const std::shared_ptr<Tensor> num_valid =
        Tensor::FromVector(std::vector<int64_t>{total.num_valid}, {1}, batch.inputs->device());
    const optimizers::GradScale grad = optimizers::ComputeGradScale(parameters, *num_valid, max_norm);
    optimizer.Step(*grad.scale);
    return {.loss = total.mean(), .grad_norm = grad.norm->ToVector<float>()[0]};
}

float ValidationLoss(const Model& model, const data::TokenDataset& dataset, const BatchShape& shape, int num_batches) {
    const autograd::NoGradGuard no_grad;
    model.dropout_position->training = false;
    LossTotal total;
    const Device& device = model.net->Parameters().front()->device();
    const int64_t available = dataset.num_rows() / shape.batch_size;
    for (int64_t m = 0; m < std::min<int64_t>(num_batches, available); ++m) {
        const StepBatch batch = ReadRows(dataset, m * shape.batch_size, shape.batch_size, device);
        const TensorList loss = Loss(model, batch.inputs, batch.targets);
        total.Add(*loss[0], *loss[1]);
    }
    return total.mean();
}

}  // namespace infini_train
