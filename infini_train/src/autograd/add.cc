#include "infini_train/include/autograd/add.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/add.h"

namespace infini_train::autograd {
namespace {

class AddFunction : public Function {
 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [a, b] = Unpack<2>(inputs);
        return {kernels::add(a->device().type, *a, *b)};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        return {dy, dy};
    }
};

}  // namespace

std::shared_ptr<Tensor> Add(const std::shared_ptr<Tensor>& a, const std::shared_ptr<Tensor>& b) {
    return std::make_shared<AddFunction>()->Apply({a, b})[0];
}

}  // namespace infini_train::autograd
