#pragma once

#include "example/common/run_plan.h"
#include "infini_train/include/comm/mesh.h"

namespace infini_train {

/// A rank, from its weights to the last text. Rank 0 alone prints and writes files.
void RunRank(const RunPlan& plan, const comm::Mesh& mesh);

}  // namespace infini_train
