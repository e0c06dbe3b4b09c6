#include "infini_train/include/autograd/swiglu.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/swiglu.h"

namespace infini_train::autograd {
namespace {

class SwigluFunction : public Function {
 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [gate, up] = Unpack<2>(inputs);
        Save({gate, up});
        return {kernels::swiglu_forward(gate->device().type, *gate, *up)};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        const auto& [gate, up] = Unpack<2>(saved());
        auto [dgate, dup] = kernels::swiglu_backward(gate->device().type, *dy, *gate, *up);
        return {dgate, dup};
    }
};

}  // namespace

std::shared_ptr<Tensor> Swiglu(const std::shared_ptr<Tensor>& gate, const std::shared_ptr<Tensor>& up) {
    return std::make_shared<SwigluFunction>()->Apply({gate, up})[0];
}

}  // namespace infini_train::autograd
