#include "infini_train/include/nn/modules/layer_norm.h"

#include "glog/logging.h"

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
    CHECK(inputs.size() == 1 || inputs.size() == 2) << inputs.size() << " inputs of a norm";
    const bool has_branch = inputs.size() == 2;
    auto [sum, y] = autograd::LayerNorm(inputs[0], has_branch ? inputs[1] : nullptr, weight_, bias_, eps_);
    return has_branch ? TensorList{sum, y} : TensorList{y};
}

void LayerNorm::InitializeOwn(uint64_t /*seed*/, const std::string& /*prefix*/) {
    InitConstant(MasterOf(*weight_), 1.0f);
    InitConstant(MasterOf(*bias_), 0.0f);
}

}  // namespace infini_train::nn
