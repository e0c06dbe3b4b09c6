#include "infini_train/include/autograd/dropout.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/dropout.h"

namespace infini_train::autograd {
namespace {

class DropoutFunction : public Function {
 public:
    DropoutFunction(float p, const kernels::DropoutKey& key) : p_(p), key_(key) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x] = Unpack<1>(inputs);
        return {kernels::dropout(x->device().type, *x, p_, key_)};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        return {kernels::dropout(dy->device().type, *dy, p_, key_)};
    }

 private:
    float p_;
    kernels::DropoutKey key_;
};

}  // namespace

std::shared_ptr<Tensor> Dropout(const std::shared_ptr<Tensor>& x, float p, const kernels::DropoutKey& key) {
    if (p == 0.0f) {
        return x;
    }
    return std::make_shared<DropoutFunction>(p, key)->Apply({x})[0];
}

}  // namespace infini_train::autograd
