#include "infini_train/include/nn/modules/mlp.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/gelu_mlp.h"
#include "infini_train/include/autograd/swiglu.h"

namespace infini_train::nn {

Mlp::Mlp(const Options& options, const Device& device) {
    const Linear::Options up = {.in_features = options.dim,
                                .out_features = options.hidden_dim,
                                .bias = options.bias,
                                .init_stddev = options.init_stddev};
    const Linear::Options down = {.in_features = options.hidden_dim,
                                  .out_features = options.dim,
                                  .bias = options.bias,
                                  .init_stddev = options.projection_init_stddev};
    c_fc_ = std::make_shared<Linear>(up, device);
    RegisterModule("c_fc", c_fc_);
    if (options.activation == Activation::kSwiglu) {
        c_fc2_ = std::make_shared<Linear>(up, device);
        RegisterModule("c_fc2", c_fc2_);
    }
    c_proj_ = std::make_shared<Linear>(down, device);
    RegisterModule("c_proj", c_proj_);
}

TensorList Mlp::Forward(const TensorList& inputs) {
    if (c_fc2_ == nullptr) {
        const auto& [x] = autograd::Unpack<1>(inputs);
        return {autograd::GeluMlp(x, {.up_weight = c_fc_->weight(),
                                      .up_bias = c_fc_->bias(),
                                      .down_weight = c_proj_->weight(),
                                      .down_bias = c_proj_->bias()})};
    }
    const std::shared_ptr<Tensor> up = c_fc_->Forward(inputs)[0];
    return c_proj_->Forward({autograd::Swiglu(c_fc2_->Forward(inputs)[0], up)});
}

}  // namespace infini_train::nn
