#include "infini_train/include/nn/modules/transformer_block.h"

#include <utility>

#include "glog/logging.h"

#include "infini_train/include/autograd/add.h"
#include "infini_train/include/autograd/recompute.h"

namespace infini_train::nn {

TransformerBlock::TransformerBlock(const Options& options) : options_(options) {
    RegisterModule("ln_1", options_.ln_1);
    RegisterModule("attn", options_.attn);
    RegisterModule("ln_2", options_.ln_2);
    RegisterModule("mlp", options_.mlp);
    CHECK_NOTNULL(options_.dropout_position.get());
}

TensorList TransformerBlock::Forward(const TensorList& inputs) {
    if (!options_.recompute) {
        return ForwardOnce(inputs);
    }
    // The second time must drop the same elements, also when other micro-batches came in between.
    return autograd::Recompute(
        [this, self = shared_from_this(), position = *options_.dropout_position](const TensorList& x) {
            const DropoutPosition now = std::exchange(*options_.dropout_position, position);
            TensorList outputs = ForwardOnce(x);
            *options_.dropout_position = now;
            return outputs;
        },
        inputs);
}

TensorList TransformerBlock::ForwardOnce(const TensorList& inputs) {
    const auto branch = [](const std::shared_ptr<Tensor>& x, Module& norm, Module& layer, Module* dropout) {
        TensorList y = layer.Forward(norm.Forward({x}));
        if (dropout != nullptr) {
            y = dropout->Forward(y);
        }
        return autograd::Add(x, y[0]);
    };
    const std::shared_ptr<Tensor> x = branch(inputs.at(0), *options_.ln_1, *options_.attn, options_.attn_dropout.get());
    return {branch(x, *options_.ln_2, *options_.mlp, options_.mlp_dropout.get())};
}

}  // namespace infini_train::nn
