#include "infini_train/include/nn/parallel/utils.h"

#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"

namespace infini_train::nn::parallel {
namespace {

using Ranks = std::vector<int>;

constexpr comm::MeshShape kShape = {.tensor = 2, .data = 3, .pipeline = 2};

TEST(GroupRanks, FollowTheAxis) {
    // pipeline 0: 0 1 | 2 3 | 4 5    pipeline 1: 6 7 | 8 9 | 10 11
    EXPECT_EQ(GetTensorParallelGroupRanks(9, kShape), (Ranks{8, 9}));
    EXPECT_EQ(GetDataParallelGroupRanks(9, kShape), (Ranks{7, 9, 11}));
    EXPECT_EQ(GetPipelineParallelGroupRanks(9, kShape), (Ranks{3, 9}));
    EXPECT_EQ(GetDataParallelGroupRanks(4, kShape), (Ranks{0, 2, 4}));
}

TEST(GroupRanks, AreAllRanksWithOneAxisAlone) {
    EXPECT_EQ(GetPipelineParallelGroupRanks(2, {.pipeline = 4}), (Ranks{0, 1, 2, 3}));
    EXPECT_EQ(GetDataParallelGroupRanks(2, {.pipeline = 4}), Ranks{2});
    EXPECT_EQ(GetTensorParallelGroupRanks(0, {}), Ranks{0});
}

TEST(GroupRanks, AreThoseOfTheMesh) {
    comm::RunRanks({.shape = kShape, .timeout_s = 60.0}, [](const comm::Mesh& mesh) {
        EXPECT_EQ(mesh.tensor->world_ranks(), GetTensorParallelGroupRanks(mesh.rank, kShape));
        EXPECT_EQ(mesh.data->world_ranks(), GetDataParallelGroupRanks(mesh.rank, kShape));
        EXPECT_EQ(mesh.pipeline->world_ranks(), GetPipelineParallelGroupRanks(mesh.rank, kShape));
    });
}

}  // namespace
}  // namespace infini_train::nn::parallel
