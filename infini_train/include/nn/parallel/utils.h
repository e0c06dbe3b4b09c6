#pragma once

#include <vector>

#include "infini_train/include/comm/mesh.h"

namespace infini_train::nn::parallel {

/// World ranks of the group along an axis that `rank` is in, in the order of the axis: the stages of one model, the
/// replicas of one slice, the parts of one layer.
std::vector<int> GetPipelineParallelGroupRanks(int rank, const comm::MeshShape& shape);
std::vector<int> GetDataParallelGroupRanks(int rank, const comm::MeshShape& shape);
std::vector<int> GetTensorParallelGroupRanks(int rank, const comm::MeshShape& shape);

}  // namespace infini_train::nn::parallel
