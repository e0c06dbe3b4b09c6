#pragma once

#include <memory>
#include <vector>

#include "infini_train/include/nn/module.h"

namespace infini_train::nn {

/// Modules one after the other, named by their position from first_index on.
/// Forward: the inputs of the first -> the outputs of the last; without modules the inputs themselves.
class Sequential : public Module {
 public:
    explicit Sequential(std::vector<std::shared_ptr<Module>> modules, int first_index = 0);

    TensorList Forward(const TensorList& inputs) override;

 private:
    std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace infini_train::nn
