#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nccl.h"

#include "infini_train/include/comm/process_group.h"
#include "infini_train/include/core/device.h"
#include "infini_train/src/comm/nccl/nccl_communicator.h"
#include "infini_train/src/comm/nccl/nccl_watchdog.h"

namespace infini_train::comm {

/// Ranks with a GPU each, threads and processes alike. Collectives run on the rank's compute stream; their sums come in
/// an order of NCCL's, which depends on sizes and the machine only and gives each rank the same bits.
class NcclProcessGroup : public ProcessGroup {
 public:
    struct Options {
        int rank = 0;  // in the group
        std::vector<int> world_ranks = {};
        Device device = {};
        std::shared_ptr<NcclWatchdog> watchdog = nullptr;
        std::shared_ptr<NcclCommunicator> communicator = nullptr;  // null: a rank alone
    };
    explicit NcclProcessGroup(const Options& options);

    void AllReduceSum(const TensorList& tensors) override;
    void AllGather(const Tensor& x, Tensor& gathered) override;
    void Broadcast(Tensor& x, int root) override;
    void Barrier() override;
    std::vector<std::string> ExchangeText(const std::string& text) override;
    std::shared_ptr<ProcessGroup> Split(int color) override;

    LinkEnds OpenLinks(const std::vector<Link>& links) override;
    void ThrowIfFailed() override;

 private:
    /// In the order of the rank's computation.
    void Enqueue(const char* name, const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& call);
    /// The number of each rank; the host waits.
    std::vector<int64_t> ExchangeNumber(int64_t number);
    /// Opens a link of this rank's and puts its end, or both where it leads back, into ends.
    void OpenOwnLink(const Link& link, std::shared_ptr<NcclCommunicator> communicator, LinkEnds* ends);
    int WorldRank(int rank) const { return world_ranks()[static_cast<size_t>(rank)]; }

    Device device_;
    std::shared_ptr<NcclWatchdog> watchdog_;
    std::shared_ptr<NcclCommunicator> communicator_;
    std::vector<Link> opened_;
};

}  // namespace infini_train::comm
