#pragma once

#include <vector>

#include "infini_train/include/nn/module.h"
#include "infini_train/include/nn/parallel/pp/checker.h"
#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"

namespace infini_train::nn::parallel {

/// Trains this rank's chunks on micro-batches of zeros, so that the device's libraries load what they need before the
/// first step. During a step they could not: a receive that was posted early keeps the GPU busy until its message
/// comes, CUDA loads a kernel when nothing is running, and the sender may be waiting, for the same reason, for what
/// this rank computes. Gradients are cleared afterwards. boundaries[s]: what stage s sends to s + 1.
void WarmUp(PipelineStage& stage, const std::vector<BoundarySpec>& boundaries, const BoundarySpec& input,
            Module* loss_fn, const BoundarySpec& target);

}  // namespace infini_train::nn::parallel
