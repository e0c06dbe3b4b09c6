#include "infini_train/include/nn/parallel/pp/pipeline_shape.h"

#include <algorithm>
#include <cstddef>

#include "glog/logging.h"

namespace infini_train::nn::parallel {

int PipelineShape::RankOf(int stage) const {
    CHECK(0 <= stage && stage < num_stages()) << "stage " << stage << " of " << num_stages();
    return rank_of_stage.empty() ? stage % num_ranks : rank_of_stage.at(static_cast<size_t>(stage));
}

int PipelineShape::ChunkOf(int stage) const {
    const int rank = RankOf(stage);
    if (rank_of_stage.empty()) {
        return stage / num_ranks;
    }
    return static_cast<int>(std::count(rank_of_stage.begin(), rank_of_stage.begin() + stage, rank));
}

int PipelineShape::StageOf(int rank, int chunk) const {
    CHECK(0 <= rank && rank < num_ranks) << "rank " << rank << " of " << num_ranks;
    CHECK(0 <= chunk && chunk < num_chunks) << "chunk " << chunk << " of " << num_chunks;
    if (rank_of_stage.empty()) {
        return chunk * num_ranks + rank;
    }
    auto stage = std::find(rank_of_stage.begin(), rank_of_stage.end(), rank);
    for (int before = 0; before < chunk && stage != rank_of_stage.end(); ++before) {
        stage = std::find(stage + 1, rank_of_stage.end(), rank);
    }
    CHECK(stage != rank_of_stage.end()) << "rank " << rank << " holds fewer than " << num_chunks << " stages";
    return static_cast<int>(stage - rank_of_stage.begin());
}

}  // namespace infini_train::nn::parallel
