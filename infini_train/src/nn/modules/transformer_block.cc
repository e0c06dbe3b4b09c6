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
    // {x, its norm} -> {x, the branch}; the norm is let go as soon as the layer has read it.
    const auto run = [](TensorList x, Module& layer, Module* dropout) {
        x[1] = layer.Forward({std::exchange(x[1], nullptr)})[0];
        if (dropout != nullptr) {
            x[1] = dropout->Forward({x[1]})[0];
        }
        return x;
    };
    TensorList x = options_.ln_1->Forward({inputs.at(0), nullptr});
    x = run(std::move(x), *options_.attn, options_.attn_dropout.get());
    x = options_.ln_2->Forward(x);
    x = run(std::move(x), *options_.mlp, options_.mlp_dropout.get());
    // Not left to the norm of the next block, which another rank may hold.
    return {autograd::Add(x[0], x[1])};
}

}  // namespace infini_train::nn
