#include "infini_train/include/autograd/attention.h"

#include "infini_train/include/autograd/function.h"

namespace infini_train::autograd {
namespace {

class AttentionFunction : public Function {
 public:
    AttentionFunction(const kernels::AttentionHeads& heads, bool deterministic)
        : heads_(heads), deterministic_(deterministic) {}

 protected:
    TensorList Forward(const TensorList& inputs) override {
        const auto& [qkv] = Unpack<1>(inputs);
        auto [out, lse] = kernels::attention_forward(qkv->device().type, *qkv, heads_);
        Save({qkv, out, lse});
        return {out};
    }

    TensorList Backward(const TensorList& grad_outputs) override {
        const auto& [dout] = Unpack<1>(grad_outputs);
        const auto& [qkv, out, lse] = Unpack<3>(saved());
        return {kernels::attention_backward(qkv->device().type, *dout, *qkv, *out, *lse, heads_, deterministic_)};
    }

 private:
    kernels::AttentionHeads heads_;
    bool deterministic_;
};

}  // namespace

std::shared_ptr<Tensor> Attention(const std::shared_ptr<Tensor>& qkv, const kernels::AttentionHeads& heads,
                                  bool deterministic) {
    return std::make_shared<AttentionFunction>(heads, deterministic)->Apply({qkv})[0];
}

}  // namespace infini_train::autograd
