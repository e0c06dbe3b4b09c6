#pragma once

#include <memory>

#include "infini_train/include/comm/process_group.h"
#include "infini_train/include/core/device.h"

namespace infini_train::comm {

/// How many ranks along each axis. The order of ranks, fastest first: tensor, data, pipeline.
struct MeshShape {
    int tensor = 1;
    int data = 1;
    int pipeline = 1;

    int num_ranks() const { return tensor * data * pipeline; }
};

/// A rank's place along each axis.
struct MeshPosition {
    int tensor = 0;
    int data = 0;
    int pipeline = 0;
};

/// rank = tensor + shape.tensor * (data + shape.data * pipeline)
MeshPosition PositionOf(int rank, const MeshShape& shape);
int RankOf(const MeshPosition& position, const MeshShape& shape);

/// data = num_ranks / (tensor * pipeline). Throws Error where that does not divide, with the rule and the numbers.
MeshShape MakeMeshShape(int num_ranks, int tensor, int pipeline);

/// All that a rank knows of where it stands: its device, its place, and the groups it belongs to. Handed to whatever
/// needs it; there is no global rank.
struct Mesh {
    MeshShape shape = {};
    MeshPosition position = {};
    int rank = 0;
    Device device = {};
    std::shared_ptr<ProcessGroup> world = nullptr;
    std::shared_ptr<ProcessGroup> tensor = nullptr;
    std::shared_ptr<ProcessGroup> data = nullptr;
    std::shared_ptr<ProcessGroup> pipeline = nullptr;
};

/// The mesh as one rank of the world sees it. Collective: the groups of the axes are split from the world, each in the
/// order of its axis.
Mesh MakeMesh(const std::shared_ptr<ProcessGroup>& world, const MeshShape& shape, const Device& device);

}  // namespace infini_train::comm
