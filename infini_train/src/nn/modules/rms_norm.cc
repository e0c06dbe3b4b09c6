#include "infini_train/include/nn/modules/rms_norm.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/rms_norm.h"
#include "infini_train/include/nn/init.h"

namespace infini_train::nn {

RmsNorm::RmsNorm(const Options& options, const Device& device) : eps_(options.eps) {
    weight_ = Tensor::Empty({options.dim}, DataType::kFloat32, device);
    RegisterParameter("weight", &weight_);
}

TensorList RmsNorm::Forward(const TensorList& inputs) {
    const auto& [x] = autograd::Unpack<1>(inputs);
    return {autograd::RmsNorm(x, weight_, eps_)};
}

void RmsNorm::InitializeOwn(uint64_t /*seed*/, const std::string& /*prefix*/) {
    InitConstant(MasterOf(*weight_), 1.0f);
}

}  // namespace infini_train::nn
