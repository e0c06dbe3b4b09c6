#pragma once

#include <vector>

namespace infini_train::nn::parallel {

/// Stages and who holds them. num_ranks ranks hold num_chunks stages each. Without rank_of_stage in a loop: stage s is
/// on rank s % num_ranks. A rank's chunks are its stages in their order.
struct PipelineShape {
    int num_ranks = 1;
    int num_microbatches = 1;
    int num_chunks = 1;
    std::vector<int> rank_of_stage = {};

    int num_stages() const { return num_ranks * num_chunks; }
    int RankOf(int stage) const;
    int ChunkOf(int stage) const;
    int StageOf(int rank, int chunk) const;
};

}  // namespace infini_train::nn::parallel
