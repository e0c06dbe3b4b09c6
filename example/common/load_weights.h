#pragma once

#include <memory>
#include <vector>

#include "example/common/pipeline_setup.h"
#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/module.h"

namespace infini_train {

/// Reads every parameter of the module from the file, by name: just those, so that a slice of a model reads its slice
/// of the file. Throws Error for a tensor that is missing or has another shape.
void LoadWeights(const checkpoint::WeightSource& file, const nn::Module& module);

/// The chunks of a rank with their values, to compute in --dtype: those of the model's files or, where it has none,
/// initial ones. The ranks share the check of a checkpoint's checksums: throws Error where its files have changed.
std::vector<std::shared_ptr<nn::Module>> LoadChunks(const ProgramOptions& options, const PipelineSetup& setup,
                                                    const ModelSpec& model,
                                                    const std::shared_ptr<nn::DropoutPosition>& position,
                                                    const comm::Mesh& mesh);

}  // namespace infini_train
