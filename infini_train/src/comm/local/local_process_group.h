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

    struct Link {
        std::shared_ptr<Mailbox> mailbox = nullptr;
        bool has_sender = false;
        bool has_receiver = false;
    };

    std::shared_ptr<LocalWorld> world;
    std::vector<int> world_ranks;
    Meeting meeting;
    std::map<std::tuple<int, int, Direction>, Link> links;  // by sender, receiver; under the world's lock
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

    std::unique_ptr<Sender> OpenSender(int peer, Direction direction) override;
    std::unique_ptr<Receiver> OpenReceiver(int peer, Direction direction) override;

 private:
    /// Runs work when all ranks are here and agree, and returns when all have run theirs.
    void Meet(const Contribution& mine, const std::function<void(const Contributions&)>& work);
    /// Takes one end of the link; each once.
    std::shared_ptr<Mailbox> TakeEnd(int sender, int receiver, Direction direction, bool LocalGroup::Link::*end);

    std::shared_ptr<LocalGroup> group_;
    Device device_;
};

}  // namespace infini_train::comm
