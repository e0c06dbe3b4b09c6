#include "infini_train/include/autograd/linear.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/linear.h"

namespace infini_train::autograd {
namespace {

constexpr size_t kInput = 0;
constexpr size_t kWeight = 1;
constexpr size_t kBias = 2;

class LinearFunction : public Function {
 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x, weight, bias] = Unpack<3>(inputs);
        // The weight's gradient needs x, the input's gradient needs the weight: keep just what will be asked for.
        Save({needs_input_grad(kWeight) ? x : nullptr, needs_input_grad(kInput) ? weight : nullptr});
        return {kernels::linear_forward(x->device().type, *x, *weight, bias.get())};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        const auto& [x, weight] = Unpack<2>(saved());
        const DeviceType device = dy->device().type;
        if (needs_input_grad(kWeight)) {
            AddWeightGrad(kWeight, [dy = dy, x = x, device](const Tensor::GradSlot& slot) {
                kernels::linear_backward_weight(device, *dy, *x, *slot.grad, slot.accumulate);
            });
        }
        if (needs_input_grad(kBias)) {
            AddWeightGrad(kBias, [dy = dy, device](const Tensor::GradSlot& slot) {
                kernels::linear_backward_bias(device, *dy, *slot.grad, slot.accumulate);
            });
        }
        return {needs_input_grad(kInput) ? kernels::linear_backward_input(device, *dy, *weight) : nullptr, nullptr,
                nullptr};
    }
};

}  // namespace

std::shared_ptr<Tensor> Linear(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& weight,
                               const std::shared_ptr<Tensor>& bias) {
    return std::make_shared<LinearFunction>()->Apply({x, weight, bias})[0];
}

}  // namespace infini_train::autograd
