#include "infini_train/include/autograd/layer_norm.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/layer_norm.h"

namespace infini_train::autograd {
namespace {

class LayerNormFunction : public Function {
 public:
    explicit LayerNormFunction(float eps) : eps_(eps) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x, weight, bias] = Unpack<3>(inputs);
        auto [y, mean, rstd] = kernels::layer_norm_forward(x->device().type, *x, *weight, *bias, eps_);
        Save({x, weight, mean, rstd});
        return {y};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        const auto& [x, weight, mean, rstd] = Unpack<4>(saved());
        auto [dx, dweight, dbias] = kernels::layer_norm_backward(x->device().type, *dy, *x, *weight, *mean, *rstd);
        return {dx, dweight, dbias};
    }

 private:
    float eps_;
};

}  // namespace

std::shared_ptr<Tensor> LayerNorm(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& weight,
                                  const std::shared_ptr<Tensor>& bias, float eps) {
    return std::make_shared<LayerNormFunction>(eps)->Apply({x, weight, bias})[0];
}

}  // namespace infini_train::autograd
