#include "infini_train/include/nn/modules/embedding.h"

#include "glog/logging.h"

#include "infini_train/include/autograd/embedding.h"
#include "infini_train/include/autograd/function.h"
#include "infini_train/include/nn/init.h"

namespace infini_train::nn {

Embedding::Embedding(const Options& options, const Device& device) : options_(options) {
    CHECK(0 <= options.num_used && options.num_used <= options.num_embeddings)
        << options.num_used << " of " << options.num_embeddings << " rows";
    weight_ = Tensor::Empty({options.num_embeddings, options.dim}, DataType::kFloat32, device);
    RegisterParameter("weight", &weight_);
}

TensorList Embedding::Forward(const TensorList& inputs) {
    const auto& [ids] = autograd::Unpack<1>(inputs);
    return {autograd::Embedding(ids, weight_)};
}

void Embedding::InitializeOwn(uint64_t seed, const std::string& prefix) {
    Tensor& weight = MasterOf(*weight_);
    InitNormal(*weight.Slice(0, options_.num_used), options_.init_stddev,
               {.seed = seed, .stream = StreamOf(prefix + "weight")});
    InitConstant(*weight.Slice(options_.num_used, options_.num_embeddings), 0.0f);
}

}  // namespace infini_train::nn
