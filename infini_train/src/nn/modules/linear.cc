#include "infini_train/include/nn/modules/linear.h"

#include "infini_train/include/autograd/function.h"
#include "infini_train/include/autograd/linear.h"
#include "infini_train/include/nn/init.h"

namespace infini_train::nn {

Linear::Linear(const Options& options, const Device& device) : options_(options) {
    weight_ = Tensor::Empty({options.out_features, options.in_features}, DataType::kFloat32, device);
    RegisterParameter("weight", &weight_);
    if (options.bias) {
        bias_ = Tensor::Empty({options.out_features}, DataType::kFloat32, device);
        RegisterParameter("bias", &bias_);
    }
}

TensorList Linear::Forward(const TensorList& inputs) {
    const auto& [x] = autograd::Unpack<1>(inputs);
    return {autograd::Linear(x, weight_, bias_)};
}

void Linear::InitializeOwn(uint64_t seed, const std::string& prefix) {
    if (weight_ != nullptr) {
        Tensor& weight = MasterOf(*weight_);
        const int64_t num_used = options_.num_used < 0 ? options_.out_features : options_.num_used;
        InitNormal(*weight.Slice(0, num_used), options_.init_stddev,
                   {.seed = seed, .stream = StreamOf(prefix + "weight")});
        InitConstant(*weight.Slice(num_used, options_.out_features), 0.0f);
    }
    if (bias_ != nullptr) {
        InitConstant(MasterOf(*bias_), 0.0f);
    }
}

}  // namespace infini_train::nn
