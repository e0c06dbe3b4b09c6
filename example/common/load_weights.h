#pragma once

#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/nn/module.h"

namespace infini_train {

/// Reads every parameter of the module from the file, by name: just those, so that a slice of a model reads its slice
/// of the file. Throws Error for a tensor that is missing or has another shape.
void LoadWeights(const checkpoint::WeightSource& file, const nn::Module& module);

}  // namespace infini_train
