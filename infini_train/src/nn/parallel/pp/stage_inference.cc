#include "infini_train/src/nn/parallel/pp/stage_inference.h"

#include <sstream>
#include <string>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/core/device.h"

namespace infini_train::nn::parallel {
namespace {

std::string ToText(const StageSpec& spec) {
    std::ostringstream text;
    text << spec.activation_bytes << ' ' << static_cast<int>(spec.output.dtype);
    for (const int64_t extent : spec.output.shape) {
        text << ' ' << extent;
    }
    return text.str();
}

StageSpec FromText(const std::string& text) {
    std::istringstream in(text);
    StageSpec spec;
    int dtype = 0;
    in >> spec.activation_bytes >> dtype;
    spec.output.dtype = static_cast<DataType>(dtype);
    for (int64_t extent = 0; in >> extent;) {
        spec.output.shape.push_back(extent);
    }
    return spec;
}

}  // namespace

StageSpec InferStage(PipelineStage& stage, int chunk, const BoundarySpec& input, Module* loss_fn,
                     const BoundarySpec& target) {
    const Device meta = MakeMetaDevice();
    std::shared_ptr<Tensor> x = Tensor::Empty(input.shape, input.dtype, meta);
    // The input of the model belongs to the caller; what a stage received is its own.
    const int64_t bytes_of_caller = stage.is_first(chunk) ? meta.allocator->stats().live_bytes : 0;
    if (!stage.is_first(chunk)) {
        x->set_requires_grad(true);
    }
    TensorList outputs = stage.ForwardOneChunk({x}, chunk);
    StageSpec spec = {.output = {.shape = outputs[0]->shape(), .dtype = outputs[0]->dtype()}};
    if (stage.is_last(chunk) && loss_fn != nullptr) {
        outputs.push_back(Tensor::Empty(target.shape, target.dtype, meta));
        outputs = loss_fn->Forward(std::exchange(outputs, {}));
    }
    // The tape alone, as between forward and backward.
    const std::shared_ptr<autograd::Function> tape = outputs[0]->grad_function();
    outputs.clear();
    x = stage.is_first(chunk) ? x : nullptr;
    spec.activation_bytes = meta.allocator->stats().live_bytes - bytes_of_caller;
    return spec;
}

std::vector<StageSpec> InferStages(PipelineStage& stage, const BoundarySpec& input, Module* loss_fn,
                                   const BoundarySpec& target) {
    const PipelineShape shape = stage.ShapeFor(1);
    std::vector<StageSpec> specs;
    for (int s = 0; s < shape.num_stages(); ++s) {
        std::string own;
        if (shape.RankOf(s) == stage.rank()) {
            own = ToText(InferStage(stage, shape.ChunkOf(s), s == 0 ? input : specs.back().output, loss_fn, target));
        }
        specs.push_back(FromText(stage.group().ExchangeText(own)[static_cast<size_t>(shape.RankOf(s))]));
    }
    return specs;
}

}  // namespace infini_train::nn::parallel
