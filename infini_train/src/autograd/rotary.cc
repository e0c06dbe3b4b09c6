#include "infini_train/include/autograd/rotary.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/rotary.h"

namespace infini_train::autograd {
namespace {

class RotaryFunction : public Function {
 public:
    explicit RotaryFunction(const kernels::AttentionHeads& heads) : heads_(heads) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [qkv, angles] = Unpack<2>(inputs);
        Save({angles});
        return {kernels::rotary(qkv->device().type, *qkv, *angles, heads_, /*inverse=*/false)};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        const auto& [angles] = Unpack<1>(saved());
        return {kernels::rotary(dy->device().type, *dy, *angles, heads_, /*inverse=*/true), nullptr};
    }

 private:
    kernels::AttentionHeads heads_;
};

}  // namespace

std::shared_ptr<Tensor> Rotary(const std::shared_ptr<Tensor>& qkv, const std::shared_ptr<Tensor>& angles,
                               const kernels::AttentionHeads& heads) {
    return std::make_shared<RotaryFunction>(heads)->Apply({qkv, angles})[0];
}

}  // namespace infini_train::autograd
