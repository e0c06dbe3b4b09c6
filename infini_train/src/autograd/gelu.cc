#include "infini_train/include/autograd/gelu.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/gelu.h"

namespace infini_train::autograd {
namespace {

class GeluFunction : public Function {
 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x] = Unpack<1>(inputs);
        Save({x});
        return {kernels::gelu_forward(x->device().type, *x)};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        const auto& [x] = Unpack<1>(saved());
        return {kernels::gelu_backward(x->device().type, *dy, *x)};
    }
};

}  // namespace

std::shared_ptr<Tensor> Gelu(const std::shared_ptr<Tensor>& x) {
    return std::make_shared<GeluFunction>()->Apply({x})[0];
}

}  // namespace infini_train::autograd
