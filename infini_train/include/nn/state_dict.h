#pragma once

#include <map>
#include <memory>
#include <string>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/nn/module.h"

namespace infini_train::nn {

/// Float32 values of every parameter by name: the parameter itself, or its master where it computes in bfloat16. The
/// tensors share storage with the module.
std::map<std::string, std::shared_ptr<Tensor>> StateDict(const Module& module);

/// After the float32 values of a parameter were written: brings its bfloat16 copy up to date, where it has one.
void RefreshFromMaster(Tensor& parameter);

}  // namespace infini_train::nn
