#include "infini_train/include/nn/parallel/utils.h"

namespace infini_train::nn::parallel {
namespace {

/// The ranks at 0, 1, ... size - 1 of an axis, the rest of the position as `rank` has it.
std::vector<int> RanksAlong(int comm::MeshPosition::*axis, int size, int rank, const comm::MeshShape& shape) {
    comm::MeshPosition position = comm::PositionOf(rank, shape);
    std::vector<int> ranks;
    for (int i = 0; i < size; ++i) {
        position.*axis = i;
        ranks.push_back(comm::RankOf(position, shape));
    }
    return ranks;
}

}  // namespace

std::vector<int> GetPipelineParallelGroupRanks(int rank, const comm::MeshShape& shape) {
    return RanksAlong(&comm::MeshPosition::pipeline, shape.pipeline, rank, shape);
}

std::vector<int> GetDataParallelGroupRanks(int rank, const comm::MeshShape& shape) {
    return RanksAlong(&comm::MeshPosition::data, shape.data, rank, shape);
}

std::vector<int> GetTensorParallelGroupRanks(int rank, const comm::MeshShape& shape) {
    return RanksAlong(&comm::MeshPosition::tensor, shape.tensor, rank, shape);
}

}  // namespace infini_train::nn::parallel
