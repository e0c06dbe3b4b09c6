#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/include/nn/parallel/pp/pipeline_stage.h"

namespace infini_train::nn::parallel {

/// A parameter of some stage, as its rank tells the others.
struct InventoryEntry {
    int stage = 0;
    int rank = 0;  // of the pipeline
    bool is_shared = false;
    int64_t num_elements = 0;
    std::string name = {};
};

/// What this rank tells, a line a parameter.
std::string InventoryText(const PipelineStage& stage);
/// The parameters of all stages of a pipeline, in the order of the whole model. Collective over the pipeline.
std::vector<InventoryEntry> TakeInventory(const PipelineStage& stage);

}  // namespace infini_train::nn::parallel
