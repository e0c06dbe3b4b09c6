#pragma once

#include <string>

#include "example/common/run_plan.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"

namespace infini_train {

/// --prompt and the text that the model goes on with; without a prompt a text as it begins. Collective over the
/// pipeline.
std::string SampleText(const RunPlan& plan, const comm::Mesh& mesh, nn::parallel::PipelineParallel& pipeline);

}  // namespace infini_train
