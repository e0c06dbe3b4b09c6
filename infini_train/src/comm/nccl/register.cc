#include <memory>
#include <string>

#include "nccl.h"

#include "infini_train/src/comm/nccl/nccl_check.h"
#include "infini_train/src/comm/nccl/nccl_world.h"
#include "infini_train/src/comm/nccl_backend.h"

namespace infini_train::comm {
namespace {

std::string MakeUniqueId() {
    ncclUniqueId id;
    INFINI_NCCL_CHECK(ncclGetUniqueId(&id));
    return std::string(id.internal, sizeof(id.internal));
}

std::shared_ptr<World> MakeWorld(const NcclWorldOptions& options) {
    return std::make_shared<NcclWorld>(options);
}

// Runs when the library is loaded, before main.
[[maybe_unused]] const bool registered = [] {
    nccl_backend = {.make_unique_id = MakeUniqueId, .make_world = MakeWorld};
    return true;
}();

}  // namespace
}  // namespace infini_train::comm
