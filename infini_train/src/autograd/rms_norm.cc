#include "infini_train/include/autograd/rms_norm.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/kernels/rms_norm.h"

namespace infini_train::autograd {
namespace {

class RmsNormFunction : public Function {
 public:
    explicit RmsNormFunction(float eps) : eps_(eps) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [x, weight] = Unpack<2>(inputs);
        auto [y, rstd] = kernels::rms_norm_forward(x->device().type, *x, *weight, eps_);
        Save({x, weight, rstd});
        return {y};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dy] = Unpack<1>(grad_outputs);
        const auto& [x, weight, rstd] = Unpack<3>(saved());
        auto [dx, dweight] = kernels::rms_norm_backward(x->device().type, *dy, *x, *weight, *rstd);
        return {dx, dweight};
    }

 private:
    float eps_;
};

}  // namespace

std::shared_ptr<Tensor> RmsNorm(const std::shared_ptr<Tensor>& x, const std::shared_ptr<Tensor>& weight, float eps) {
    return std::make_shared<RmsNormFunction>(eps)->Apply({x, weight})[0];
}

}  // namespace infini_train::autograd
