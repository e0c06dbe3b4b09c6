#pragma once

#include <memory>

#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/modules/dropout.h"

namespace infini_train::nn {

/// A pre-norm block: x = x + dropout(attn(ln_1(x)));  x = x + dropout(mlp(ln_2(x)))
/// The norms are such that take {x, branch or null} (LayerNorm, RmsNorm): ln_2 adds the first branch on the way.
/// Forward: {x [B, T, dim]} -> {x [B, T, dim]}
class TransformerBlock : public Module {
 public:
    struct Options {
        std::shared_ptr<Module> ln_1 = nullptr;
        std::shared_ptr<Module> attn = nullptr;
        std::shared_ptr<Module> ln_2 = nullptr;
        std::shared_ptr<Module> mlp = nullptr;
        std::shared_ptr<Module> attn_dropout = nullptr;  // null: none
        std::shared_ptr<Module> mlp_dropout = nullptr;   // null: none
        std::shared_ptr<DropoutPosition> dropout_position = nullptr;
        bool recompute = false;  // keep only x for the backward and compute the rest again there
    };
    explicit TransformerBlock(const Options& options);

    TensorList Forward(const TensorList& inputs) override;

 private:
    TensorList ForwardOnce(const TensorList& inputs);

    Options options_;
};

}  // namespace infini_train::nn
