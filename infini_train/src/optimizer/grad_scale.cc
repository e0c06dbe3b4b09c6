#include "infini_train/include/optimizer/grad_scale.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "infini_train/include/kernels/grad_norm.h"

namespace infini_train::optimizers {

GradScale ComputeGradScale(const TensorList& parameters, const Tensor& num_valid, float max_norm) {
    std::vector<const Tensor*> grads;
    grads.reserve(parameters.size());
    for (const std::shared_ptr<Tensor>& parameter : parameters) {
        // The leaf keeps its gradient alive for the length of this call.
        if (const Tensor* grad = parameter->grad().get(); grad != nullptr) {
            grads.push_back(grad);
        }
    }
    const DeviceType device = num_valid.device().type;
    const std::shared_ptr<Tensor> squared_sums =
        Tensor::Empty({static_cast<int64_t>(grads.size())}, DataType::kFloat32, num_valid.device());
    kernels::squared_sums(device, grads, *squared_sums);
    auto [norm, scale] = kernels::grad_scale(device, *squared_sums, num_valid, max_norm);
    return {.norm = std::move(norm), .scale = std::move(scale)};
}

}  // namespace infini_train::optimizers
