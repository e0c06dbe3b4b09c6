#include "test/support/reference_step.h"

#include <cstdint>
#include <vector>

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/optimizer/grad_scale.h"

namespace infini_train::test {
namespace {

struct Total {
    double sum = 0.0;
    int64_t count = 0;

    float mean() const { return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count)); }
};

/// Forward, loss and, where it learns, backward of each micro-batch.
Total RunMicrobatches(const ReferenceModel& model, const std::shared_ptr<Tensor>& inputs,
                      const std::shared_ptr<Tensor>& targets, int num_microbatches, bool learns) {
    const int64_t rows = inputs->dim(0) / num_microbatches;
    Total total;
    for (int64_t m = 0; m < num_microbatches; ++m) {
        model.position->first_sample = static_cast<uint64_t>(m * rows);
        const TensorList output = model.net->Forward({inputs->Slice(m * rows, (m + 1) * rows)});
        const TensorList loss = model.loss_fn->Forward({output[0], targets->Slice(m * rows, (m + 1) * rows)});
        if (learns) {
            autograd::Backward({loss[0]}, {nullptr});
        }
        total.sum += static_cast<double>(loss[0]->ToVector<float>()[0]);
        total.count += loss[1]->ToVector<int64_t>()[0];
    }
    return total;
}

}  // namespace

ReferenceResult ReferenceStep(const ReferenceModel& model, const std::shared_ptr<Tensor>& inputs,
                              const std::shared_ptr<Tensor>& targets, int num_microbatches, float max_norm,
                              optimizers::Optimizer& optimizer) {
    optimizer.ClearGrads();
    for (const nn::TiedParameters& tie : model.net->Ties()) {
        tie.alias->ClearGrad();
    }
    model.position->training = true;
    model.position->step = static_cast<uint64_t>(optimizer.step());
    const Total total = RunMicrobatches(model, inputs, targets, num_microbatches, /*learns=*/true);
    nn::ReduceTiedGrads(*model.net);
    const auto num_valid = Tensor::FromVector(std::vector<int64_t>{total.count}, {1}, inputs->device());
    const optimizers::GradScale grad = optimizers::ComputeGradScale(model.net->Parameters(), *num_valid, max_norm);
    optimizer.Step(*grad.scale);
    return {.loss = total.mean(), .grad_norm = grad.norm->ToVector<float>()[0]};
}

float ReferenceEvalStep(const ReferenceModel& model, const std::shared_ptr<Tensor>& inputs,
                        const std::shared_ptr<Tensor>& targets, int num_microbatches) {
    const autograd::NoGradGuard no_grad;
    model.position->training = false;
    return RunMicrobatches(model, inputs, targets, num_microbatches, /*learns=*/false).mean();
}

}  // namespace infini_train::test
