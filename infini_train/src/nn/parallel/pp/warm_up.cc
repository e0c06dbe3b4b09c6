#include "infini_train/src/nn/parallel/pp/warm_up.h"

#include <memory>
#include <utility>

#include "infini_train/include/autograd/engine.h"

namespace infini_train::nn::parallel {
namespace {

std::shared_ptr<Tensor> ZerosOf(const BoundarySpec& spec, const Device& device) {
    return Tensor::Zeros(spec.shape, spec.dtype, device);
}

void ClearGrads(const Module& chunk) {
    for (const std::shared_ptr<Tensor>& parameter : chunk.Parameters()) {
        parameter->ClearGrad();
    }
    for (const TiedParameters& tie : chunk.Ties()) {
        tie.alias->ClearGrad();
    }
}

void TrainOnZeros(PipelineStage& stage, int chunk, const BoundarySpec& input, Module* loss_fn,
                  const BoundarySpec& target) {
    const std::shared_ptr<Tensor> x = ZerosOf(input, stage.device());
    if (!stage.is_first(chunk)) {
        x->set_requires_grad(true);
    }
    TensorList outputs = stage.ForwardOneChunk({x}, chunk);
    std::shared_ptr<Tensor> grad;
    if (stage.is_last(chunk)) {
        outputs.push_back(ZerosOf(target, stage.device()));
        outputs = loss_fn->Forward(std::exchange(outputs, {}));
    } else {
        grad = Tensor::Zeros(outputs[0]->shape(), outputs[0]->dtype(), stage.device());
    }
    autograd::Backward({outputs[0]}, {grad});
}

}  // namespace

void WarmUp(PipelineStage& stage, const std::vector<BoundarySpec>& boundaries, const BoundarySpec& input,
            Module* loss_fn, const BoundarySpec& target) {
    for (int chunk = 0; chunk < stage.num_chunks(); ++chunk) {
        const Module& module = *stage.chunks()[static_cast<size_t>(chunk)];
        const int s = stage.StageOf(chunk);
        ClearGrads(module);
        // A first gradient is written, a second one added: two different kernels.
        for (int round = 0; round < 2; ++round) {
            TrainOnZeros(stage, chunk, s == 0 ? input : boundaries[static_cast<size_t>(s - 1)], loss_fn, target);
        }
        ClearGrads(module);
    }
    StreamOf(stage.device())->Synchronize();
}

}  // namespace infini_train::nn::parallel
