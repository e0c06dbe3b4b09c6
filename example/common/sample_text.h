#pragma once

#include <string>

#include "example/common/run_plan.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/nn/parallel/pp/pipeline_parallel.h"

namespace infini_train {

/// Throws Error for a prompt whose tokens the model does not have: before the training, not after it.
void CheckText(const ProgramOptions& options, const ModelSpec& model, const data::Tokenizer& tokenizer);

/// --prompt and the text that the model goes on with; without a prompt a text from its beginning. Collective over the
/// pipeline.
std::string SampleText(const RunPlan& plan, const comm::Mesh& mesh, nn::parallel::PipelineParallel& pipeline);

}  // namespace infini_train
