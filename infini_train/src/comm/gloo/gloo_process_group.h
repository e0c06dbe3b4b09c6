#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/comm/process_group.h"
#include "infini_train/include/core/device.h"
#include "infini_train/src/comm/gloo/gloo_connections.h"
#include "infini_train/src/comm/gloo/process_round.h"
#include "infini_train/src/comm/gloo/process_sum.h"
#include "infini_train/src/comm/local/local_process_group.h"

namespace infini_train::comm {

/// What the ranks of one process share of a group that has ranks of other processes, too. As a LocalGroup it is the
/// group of this process's ranks alone. The first of them acts for all of them between the processes.
struct GlooGroup : LocalGroup {
    GlooGroup(std::shared_ptr<LocalWorld> world, GroupProcesses processes);

    GroupProcesses processes;
    ProcessSum sum;
    std::vector<std::string> texts;  // of the last exchange, by rank of the group
    // Of the last collective: what the processes came for, and what failed between them.
    std::vector<std::string> descriptions;
    std::exception_ptr failure;
};

/// Ranks of several processes on CPUs.
class GlooProcessGroup : public ProcessGroup {
 public:
    /// As the rank of this process at local_rank, counted in this group, sees it. What it receives is on the device.
    GlooProcessGroup(std::shared_ptr<GlooGroup> group, int local_rank, const Device& device);

    void AllReduceSum(const TensorList& tensors) override;
    void AllGather(const Tensor& x, Tensor& gathered) override;
    void Broadcast(Tensor& x, int root) override;
    void Barrier() override;
    std::vector<std::string> ExchangeText(const std::string& text) override;
    std::shared_ptr<ProcessGroup> Split(int color) override;

    LinkEnds OpenLinks(const std::vector<Link>& links) override;
    void ThrowIfFailed() override;

 private:
    /// When all ranks of this process are here, and those of all processes agree, the first one runs work. Throws the
    /// same Error on all of them when that fails.
    void Meet(const Contribution& mine, const std::function<void(const Contributions& local)>& work);
    /// Each rank of this process becomes a copy of what the source among them has.
    void CopyFromLocal(int source, const Tensor& have, Tensor& become);
    /// The place of a rank of this group among those of this process, or -1.
    int LocalRankOf(int rank) const;
    int WorldRank(int rank) const { return world_ranks()[static_cast<size_t>(rank)]; }
    const GroupProcesses& processes() const { return group_->processes; }

    std::shared_ptr<GlooGroup> group_;
    int local_rank_;
    Device device_;
    LocalProcessGroup local_;  // for the links within this process
    std::vector<Link> opened_;
};

}  // namespace infini_train::comm
