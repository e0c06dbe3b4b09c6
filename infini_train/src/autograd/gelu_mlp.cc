#include "infini_train/include/autograd/gelu_mlp.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/linear.h"

namespace infini_train::autograd {
namespace {

constexpr size_t kInput = 0;
constexpr size_t kUpWeight = 1;
constexpr size_t kUpBias = 2;
constexpr size_t kDownWeight = 3;
constexpr size_t kDownBias = 4;

class GeluMlpFunction : public Function {
 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x, up_weight, up_bias, down_weight, down_bias] = Unpack<5>(inputs);
        const DeviceType device = x->device().type;
        const auto [pre, hidden] = kernels::linear_gelu_forward(device, *x, *up_weight, up_bias.get());
        // Just what will be asked for, as in Linear.
        const bool needs_dpre = NeedsGradOfPre();
        Save({needs_input_grad(kUpWeight) ? x : nullptr, needs_input_grad(kInput) ? up_weight : nullptr,
              needs_dpre ? pre : nullptr, needs_dpre ? down_weight : nullptr,
              needs_input_grad(kDownWeight) ? hidden : nullptr});
        return {kernels::linear_forward(device, *hidden, *down_weight, down_bias.get())};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        const auto& [x, up_weight, pre, down_weight, hidden] = Unpack<5>(saved());
        const DeviceType device = dy->device().type;
        AddGrads(kDownWeight, dy, hidden);
        if (!NeedsGradOfPre()) {
            return TensorList(5);
        }
        const auto dpre = kernels::linear_backward_input_gelu(device, *dy, *down_weight, *pre);
        AddGrads(kUpWeight, dpre, x);
        return {needs_input_grad(kInput) ? kernels::linear_backward_input(device, *dpre, *up_weight) : nullptr, nullptr,
                nullptr, nullptr, nullptr};
    }

 private:
    bool NeedsGradOfPre() const {
        return needs_input_grad(kInput) || needs_input_grad(kUpWeight) || needs_input_grad(kUpBias);
    }

    /// Of a linear layer's weight, and of its bias, which is the next input.
    void AddGrads(size_t weight, const std::shared_ptr<Tensor>& dy, const std::shared_ptr<Tensor>& x) {
        const DeviceType device = dy->device().type;
        if (needs_input_grad(weight)) {
            AddWeightGrad(weight, [dy, x, device](const Tensor::GradSlot& slot) {
                kernels::linear_backward_weight(device, *dy, *x, *slot.grad, slot.accumulate);
            });
        }
        if (needs_input_grad(weight + 1)) {
            AddWeightGrad(weight + 1, [dy, device](const Tensor::GradSlot& slot) {
                kernels::linear_backward_bias(device, *dy, *slot.grad, slot.accumulate);
            });
        }
    }
};

}  // namespace

std::shared_ptr<Tensor> GeluMlp(const std::shared_ptr<Tensor>& x, const GeluMlpParameters& parameters) {
    return std::make_shared<GeluMlpFunction>()->Apply(
        {x, parameters.up_weight, parameters.up_bias, parameters.down_weight, parameters.down_bias})[0];
}

}  // namespace infini_train::autograd
