#include "infini_train/include/nn/modules/layer_norm.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/layer_norm.h"
#include "infini_train/include/nn/init.h"

namespace infini_train::nn {

LayerNorm::LayerNorm(const Options& options, const Device& device) : eps_(options.eps) {
    weight_ = Tensor::Empty({options.dim}, DataType::kFloat32, device);
    bias_ = Tensor::Empty({options.dim}, DataType::kFloat32, device);
    RegisterParameter("weight", &weight_);
    RegisterParameter("bias", &bias_);
}

TensorList LayerNorm::Forward(const TensorList& inputs) {
    const auto& [x] = autograd::Unpack<1>(inputs);
    return {autograd::LayerNorm(x, weight_, bias_, eps_)};
}

void LayerNorm::InitializeOwn(uint64_t /*seed*/, const std::string& /*prefix*/) {
    InitConstant(MasterOf(*weight_), 1.0f);
    InitConstant(MasterOf(*bias_), 0.0f);
}

}  // namespace infini_train::nn
