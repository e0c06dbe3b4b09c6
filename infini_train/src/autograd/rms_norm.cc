#include "infini_train/include/autograd/rms_norm.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/rms_norm.h"

namespace infini_train::autograd {
namespace {

constexpr size_t kBranch = 1;

class RmsNormFunction : public Function {
 public:
    explicit RmsNormFunction(float eps) : eps_(eps) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x, branch, weight] = Unpack<3>(inputs);
        auto [sum, y, rstd] = kernels::rms_norm_forward(x->device().type, *x, branch.get(), *weight, eps_);
        if (sum == nullptr) {
            sum = x->Detach();
        }
        Save({sum, weight, rstd});
        return {sum, y};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dsum, dy] = Unpack<2>(grad_outputs);
        const auto& [sum, weight, rstd] = Unpack<3>(saved());
        if (dy == nullptr) {
            return {dsum, needs_input_grad(kBranch) ? dsum : nullptr, nullptr};
        }
        auto [dx, dweight] = kernels::rms_norm_backward(sum->device().type, *dy, dsum.get(), *sum, *weight, *rstd);
        return {dx, needs_input_grad(kBranch) ? dx : nullptr, dweight};
    }

 private:
    float eps_;
};

}  // namespace

RmsNormSum RmsNorm(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& branch,
                   const std::shared_ptr<Tensor>& weight, float eps) {
    const TensorList outputs = std::make_shared<RmsNormFunction>(eps)->Apply({x, branch, weight});
    return {.sum = outputs[0], .y = outputs[1]};
}

}  // namespace infini_train::autograd
