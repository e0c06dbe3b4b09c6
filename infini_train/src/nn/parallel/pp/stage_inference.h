#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"

namespace infini_train::nn::parallel {

/// What a stage makes of a micro-batch.
struct StageSpec {
    BoundarySpec output = {};
    int64_t activation_bytes = 0;  // what its forward, recorded, keeps for the backward
};

/// Runs the stage on a tensor without values (device meta): nothing is computed. loss_fn and target: of the last stage;
/// null where there is no loss.
StageSpec InferStage(PipelineStage& stage, int chunk, const BoundarySpec& input, Module* loss_fn,
                     const BoundarySpec& target);

/// Of all stages, each inferred by the rank that holds it. Collective over the pipeline.
std::vector<StageSpec> InferStages(PipelineStage& stage, const BoundarySpec& input, Module* loss_fn,
                                   const BoundarySpec& target);

}  // namespace infini_train::nn::parallel
