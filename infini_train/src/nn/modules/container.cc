#include "infini_train/include/nn/modules/container.h"

#include <string>
#include <utility>

namespace infini_train::nn {

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules, int first_index) : modules_(std::move(modules)) {
    for (const std::shared_ptr<Module>& module : modules_) {
        RegisterModule(std::to_string(first_index++), module);
    }
}

TensorList Sequential::Forward(const TensorList& inputs) {
    TensorList tensors = inputs;
    for (const std::shared_ptr<Module>& module : modules_) {
        tensors = module->Forward(tensors);
    }
    return tensors;
}

}  // namespace infini_train::nn
