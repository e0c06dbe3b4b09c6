#include "infini_train/include/comm/mesh.h"

#include <array>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/comm/run_ranks.h"
#include "test/comm/two_ranks.h"

namespace infini_train::comm {
namespace {

constexpr MeshShape kShape = {.tensor = 2, .data = 3, .pipeline = 2};

TEST(Mesh, CountsTensorThenDataThenPipeline) {
    EXPECT_EQ(kShape.num_ranks(), 12);
    EXPECT_EQ(RankOf({.tensor = 1}, kShape), 1);
    EXPECT_EQ(RankOf({.data = 1}, kShape), 2);
    EXPECT_EQ(RankOf({.pipeline = 1}, kShape), 6);
    EXPECT_EQ(RankOf({.tensor = 1, .data = 2, .pipeline = 1}, kShape), 11);
    const MeshPosition position = PositionOf(9, kShape);
    EXPECT_EQ(position.tensor, 1);
    EXPECT_EQ(position.data, 1);
    EXPECT_EQ(position.pipeline, 1);
    for (int rank = 0; rank < kShape.num_ranks(); ++rank) {
        EXPECT_EQ(RankOf(PositionOf(rank, kShape), kShape), rank);
    }
}

TEST(Mesh, MakesReplicasOfTheRanksThatAreLeft) {
    const MeshShape shape = MakeMeshShape(12, 2, 3);
    EXPECT_EQ(shape.tensor, 2);
    EXPECT_EQ(shape.data, 2);
    EXPECT_EQ(shape.pipeline, 3);
    EXPECT_EQ(MakeMeshShape(1, 1, 1).num_ranks(), 1);
}

TEST(Mesh, RefusesRanksThatDoNotDivide) {
    const std::string rule =
        "ranks: their number must be tensor parallel x pipeline parallel x a whole number of replicas (got ";
    EXPECT_EQ(ErrorOf([] { MakeMeshShape(6, 1, 4); }), rule + "6 ranks, tensor parallel 1, pipeline parallel 4)");
    EXPECT_EQ(ErrorOf([] { MakeMeshShape(2, 2, 2); }), rule + "2 ranks, tensor parallel 2, pipeline parallel 2)");
    for (const auto& [num_ranks, tensor, pipeline] : std::vector<std::array<int, 3>>{
             {0, 1, 1}, {-2, 1, 1}, {4, 0, 1}, {4, 1, -1}, {4, -2, -2}, {8, 1 << 16, 1 << 16}}) {
        EXPECT_NE(ErrorOf([&] { MakeMeshShape(num_ranks, tensor, pipeline); }), "") << num_ranks;
    }
}

TEST(Mesh, GroupsTheRanksOfEachAxis) {
    RunRanks({.shape = kShape, .timeout_s = 60.0}, [](const Mesh& mesh) {
        EXPECT_EQ(mesh.world->size(), 12);
        EXPECT_EQ(mesh.world->rank(), mesh.rank);
        EXPECT_EQ(mesh.tensor->rank(), mesh.position.tensor);
        EXPECT_EQ(mesh.data->rank(), mesh.position.data);
        EXPECT_EQ(mesh.pipeline->rank(), mesh.position.pipeline);
        EXPECT_EQ(mesh.shape.data, 3);
        if (mesh.rank == 9) {
            EXPECT_EQ(mesh.tensor->world_ranks(), (std::vector<int>{8, 9}));
            EXPECT_EQ(mesh.data->world_ranks(), (std::vector<int>{7, 9, 11}));
            EXPECT_EQ(mesh.pipeline->world_ranks(), (std::vector<int>{3, 9}));
        }
    });
}

TEST(MeshDeathTest, RefusesRanksAndPositionsOutside) {
    EXPECT_DEATH(PositionOf(12, kShape), "rank 12 of 12");
    EXPECT_DEATH(PositionOf(-1, kShape), "rank -1 of 12");
    EXPECT_DEATH(RankOf({.data = 3}, kShape), "3 of 3");
    const TwoRanks ranks;
    EXPECT_DEATH(MakeMesh(ranks.groups[0], kShape, ranks.devices[0]), "2 vs. 12");
}

}  // namespace
}  // namespace infini_train::comm
