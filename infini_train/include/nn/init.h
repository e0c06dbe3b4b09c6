#pragma once

#include "infini_train/include/core/random.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::nn {

/// The float32 values of a parameter: its master, or itself.
Tensor& MasterOf(Tensor& parameter);
/// x[i] = stddev * Normal(random, i). x float32.
void InitNormal(Tensor& x, float stddev, const RandomStream& random);
/// Every element becomes value. x float32.
void InitConstant(Tensor& x, float value);

}  // namespace infini_train::nn
