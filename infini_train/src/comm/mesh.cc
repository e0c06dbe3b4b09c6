#include "infini_train/include/comm/mesh.h"

#include <cstdint>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::comm {

MeshPosition PositionOf(int rank, const MeshShape& shape) {
    CHECK(0 <= rank && rank < shape.num_ranks()) << "rank " << rank << " of " << shape.num_ranks();
    return {.tensor = rank % shape.tensor,
            .data = rank / shape.tensor % shape.data,
            .pipeline = rank / (shape.tensor * shape.data)};
}

int RankOf(const MeshPosition& position, const MeshShape& shape) {
    CHECK(0 <= position.tensor && position.tensor < shape.tensor) << position.tensor << " of " << shape.tensor;
    CHECK(0 <= position.data && position.data < shape.data) << position.data << " of " << shape.data;
    CHECK(0 <= position.pipeline && position.pipeline < shape.pipeline)
        << position.pipeline << " of " << shape.pipeline;
    return position.tensor + shape.tensor * (position.data + shape.data * position.pipeline);
}

MeshShape MakeMeshShape(int num_ranks, int tensor, int pipeline) {
    const int64_t model_ranks = int64_t{tensor} * pipeline;
    if (num_ranks < 1 || tensor < 1 || pipeline < 1 || num_ranks % model_ranks != 0) {
        throw Error({.where = "ranks",
                     .what = "their number must be tensor parallel x pipeline parallel x a whole number of replicas",
                     .got = StrCat(num_ranks, " ranks, tensor parallel ", tensor, ", pipeline parallel ", pipeline)});
    }
    return {.tensor = tensor, .data = static_cast<int>(num_ranks / model_ranks), .pipeline = pipeline};
}

Mesh MakeMesh(const std::shared_ptr<ProcessGroup>& world, const MeshShape& shape, const Device& device) {
    CHECK_NOTNULL(world.get());
    CHECK_EQ(world->size(), shape.num_ranks());
    const MeshPosition position = PositionOf(world->rank(), shape);
    // Of each group the rank that is first in it.
    MeshPosition first_tensor = position;
    MeshPosition first_data = position;
    MeshPosition first_pipeline = position;
    first_tensor.tensor = first_data.data = first_pipeline.pipeline = 0;
    return {.shape = shape,
            .position = position,
            .rank = world->rank(),
            .device = device,
            .world = world,
            .tensor = world->Split(RankOf(first_tensor, shape)),
            .data = world->Split(RankOf(first_data, shape)),
            .pipeline = world->Split(RankOf(first_pipeline, shape))};
}

}  // namespace infini_train::comm
