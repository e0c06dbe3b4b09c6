#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "infini_train/include/comm/process_group.h"
#include "infini_train/include/core/device.h"
#include "infini_train/src/comm/local/contribution.h"
#include "infini_train/src/comm/local/local_world.h"
#include "infini_train/src/comm/local/mailbox.h"
#include "infini_train/src/comm/local/meeting.h"

namespace infini_train::comm {

/// What the ranks of a group share.
struct LocalGroup {
    LocalGroup(std::shared_ptr<LocalWorld> world, std::vector<int> world_ranks);

    struct SharedLink {
        std::shared_ptr<Mailbox> mailbox = nullptr;
        bool has_sender = false;
        bool has_receiver = false;
    };

    std::shared_ptr<LocalWorld> world;
    std::vector<int> world_ranks;
    Meeting meeting;
    std::map<std::tuple<int, int, Direction>, SharedLink> links;  // by sender, receiver; under the world's lock
};

/// Ranks that are threads of this process.
class LocalProcessGroup : public ProcessGroup {
 public:
    /// As one rank of the group sees it. What it receives is on the device.
    LocalProcessGroup(std::shared_ptr<LocalGroup> group, int rank, const Device& device);

    void AllReduceSum(const TensorList& tensors) override;
    void AllGather(const Tensor& x, Tensor& gathered) override;
    void Broadcast(Tensor& x, int root) override;
    void Barrier() override;
    std::vector<std::string> ExchangeText(const std::string& text) override;
    std::shared_ptr<ProcessGroup> Split(int color) override;

    LinkEnds OpenLinks(const std::vector<Link>& links) override;
    void ThrowIfFailed() override;

 private:
    /// Runs work when all ranks are here and agree, and returns when all have run theirs. On a device with streams the
    /// work is enqueued after what the ranks had enqueued, and what they enqueue next comes after the work of all.
    void Meet(Contribution mine, const std::function<void(const Contributions&)>& work);
    /// AllReduceSum where the ranks' threads cannot read each other's memory.
    void SumOnStream(const TensorList& tensors);
    /// Takes one end of the link; each once.
    std::shared_ptr<Mailbox> TakeEnd(int sender, int receiver, Direction direction, bool LocalGroup::SharedLink::*end);

    std::shared_ptr<LocalGroup> group_;
    Device device_;
};

}  // namespace infini_train::comm
