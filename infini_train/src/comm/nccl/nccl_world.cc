#include "infini_train/src/comm/nccl/nccl_world.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "cuda_runtime.h"
#include "glog/logging.h"
#include "nccl.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/local/contribution.h"
#include "infini_train/src/comm/nccl/nccl_process_group.h"
#include "infini_train/src/core/cuda/cuda_check.h"

namespace infini_train::comm {

NcclWorld::NcclWorld(const NcclWorldOptions& options)
    : options_(options), watchdog_(std::make_shared<NcclWatchdog>(options.timeout_s, options.on_failure)) {
    CHECK_GT(options.num_ranks, 0);
    CHECK_GT(options.timeout_s, 0.0);
}

NcclWorld::~NcclWorld() {
    if (!devices_.empty()) {
        // What follows makes a context on the thread's current GPU: not on one that this process does not use.
        INFINI_CUDA_LOG(cudaSetDevice(devices_.front().index));
    }
    watchdog_->Close();
}

std::shared_ptr<ProcessGroup> NcclWorld::Join(int rank, const Device& device) {
    CHECK(device.type == DeviceType::kCUDA) << ToString(device);
    CHECK(0 <= rank && rank < options_.num_ranks) << "rank " << rank << " of " << options_.num_ranks;
    {
        const std::lock_guard lock(mutex_);
        devices_.push_back(device);
    }
    std::vector<int> world_ranks(static_cast<size_t>(options_.num_ranks));
    std::iota(world_ranks.begin(), world_ranks.end(), 0);
    std::shared_ptr<NcclCommunicator> communicator;
    if (options_.num_ranks > 1) {
        ncclUniqueId id;
        if (options_.unique_id.size() != sizeof(id.internal)) {
            throw Error({.where = StrCat("rank ", rank),
                         .what = "the id of the run that process 0 sent is none of NCCL's",
                         .got = StrCat(options_.unique_id.size(), " bytes"),
                         .wanted = std::to_string(sizeof(id.internal)),
                         .kind = Error::Kind::kRuntime});
        }
        std::memcpy(id.internal, options_.unique_id.data(), sizeof(id.internal));
        communicator = watchdog_->Make(rank, device.index, "of " + Ranks(world_ranks), world_ranks);
        communicator->Init(options_.num_ranks, id, rank);
    }
    return std::make_shared<NcclProcessGroup>(NcclProcessGroup::Options{.rank = rank,
                                                                        .world_ranks = std::move(world_ranks),
                                                                        .device = device,
                                                                        .watchdog = watchdog_,
                                                                        .communicator = std::move(communicator)});
}

}  // namespace infini_train::comm
