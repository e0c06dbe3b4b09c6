#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/src/comm/gloo/gloo_connections.h"

namespace infini_train::comm {

/// The ranks of a group that one process holds, and how it is reached in this group.
struct GroupProcess {
    GlooChannel channel = {};     // to it; of the own process: what the others send to
    std::vector<int> ranks = {};  // of the world, ascending
    int first_place = 0;          // of its ranks in the group, where they stand together
    bool is_own = false;
};

/// What the processes of a group have to know for a collective. One thread of each process acts for it.
struct GroupProcesses {
    std::shared_ptr<GlooConnections> connections = nullptr;
    std::vector<GroupProcess> all = {};  // in the order of their ranks
    std::vector<int> world_ranks = {};
    int own = 0;  // index in all

    const GroupProcess& own_process() const { return all[static_cast<size_t>(own)]; }
};

/// Sends and receives of a collective that are under way together. Both ends start the same in the same order.
class ProcessRound {
 public:
    /// operation: for messages. The processes outlive it.
    ProcessRound(const GroupProcesses* processes, std::string operation);

    /// The memory stays until Wait has returned, or until this is destroyed.
    void Send(const GroupProcess& to, const void* data, size_t size_bytes);
    void Receive(const GroupProcess& from, void* data, size_t size_bytes);
    /// For all of them. Throws WaitError: which ranks did not come.
    void Wait();

 private:
    struct Under {
        GlooTransfer transfer;
        const GroupProcess* other;
    };

    int rank() const { return processes_->own_process().ranks.front(); }

    const GroupProcesses* processes_;
    std::string operation_;
    std::vector<Under> under_way_;
};

/// The text of each process, by its place in GroupProcesses::all.
std::vector<std::string> ExchangeTexts(const GroupProcesses& processes, const std::string& operation,
                                       const std::string& text);

}  // namespace infini_train::comm
