#include "infini_train/src/comm/local/local_ranks.h"

#include <numeric>
#include <utility>
#include <vector>

namespace infini_train::comm {

LocalRanks::LocalRanks(int num_ranks, double timeout_s) : world_(std::make_shared<LocalWorld>(num_ranks, timeout_s)) {
    std::vector<int> world_ranks(static_cast<size_t>(num_ranks));
    std::iota(world_ranks.begin(), world_ranks.end(), 0);
    all_ = std::make_shared<LocalGroup>(world_, std::move(world_ranks));
}

std::shared_ptr<ProcessGroup> LocalRanks::Join(int rank, const Device& device) {
    if (device.type == DeviceType::kCUDA) {
        world_->SetGpu(rank, device.index);
    }
    return std::make_shared<LocalProcessGroup>(all_, rank, device);
}

}  // namespace infini_train::comm
