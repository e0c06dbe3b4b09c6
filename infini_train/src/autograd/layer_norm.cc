#include "infini_train/include/autograd/layer_norm.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/layer_norm.h"

namespace infini_train::autograd {
namespace {

constexpr size_t kBranch = 1;

class LayerNormFunction : public Function {
 public:
    explicit LayerNormFunction(float eps) : eps_(eps) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x, branch, weight, bias] = Unpack<4>(inputs);
        auto [sum, y, mean, rstd] =
            kernels::layer_norm_forward(x->device().type, *x, branch.get(), *weight, *bias, eps_);
        if (sum == nullptr) {
            sum = x->Detach();
        }
        Save({sum, weight, mean, rstd});
        return {sum, y};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dsum, dy] = Unpack<2>(grad_outputs);
        const auto& [sum, weight, mean, rstd] = Unpack<4>(saved());
        if (dy == nullptr) {
            return {dsum, needs_input_grad(kBranch) ? dsum : nullptr, nullptr, nullptr};
        }
        auto [dx, dweight, dbias] =
            kernels::layer_norm_backward(sum->device().type, *dy, dsum.get(), *sum, *weight, *mean, *rstd);
        return {dx, needs_input_grad(kBranch) ? dx : nullptr, dweight, dbias};
    }

 private:
    float eps_;
};

}  // namespace

LayerNormSum LayerNorm(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& branch,
                       const std::shared_ptr<Tensor>& weight, const std::shared_ptr<Tensor>& bias, float eps) {
    const TensorList outputs = std::make_shared<LayerNormFunction>(eps)->Apply({x, branch, weight, bias});
    return {.sum = outputs[0], .y = outputs[1]};
}

}  // namespace infini_train::autograd
