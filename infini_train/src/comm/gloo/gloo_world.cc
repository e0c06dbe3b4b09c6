#include "infini_train/src/comm/gloo/gloo_world.h"

#include <utility>

#include "glog/logging.h"

namespace infini_train::comm {

GlooWorld::GlooWorld(const GlooWorldOptions& options)
    : local_(std::make_shared<LocalWorld>(options.num_ranks, options.timeout_s)),
      connections_(std::make_shared<GlooConnections>(options, &local_->waits())) {
    GroupProcesses processes = {.connections = connections_, .own = options.place.index};
    const int num_ranks_of_process = options.num_ranks / options.place.num_processes;
    for (int process = 0; process < options.place.num_processes; ++process) {
        // The channel of all ranks is the first on every process.
        processes.all.push_back({.channel = {.process = process, .id = 0},
                                 .first_place = process * num_ranks_of_process,
                                 .is_own = process == options.place.index});
        for (int n = 0; n < num_ranks_of_process; ++n) {
            processes.all.back().ranks.push_back(process * num_ranks_of_process + n);
            processes.world_ranks.push_back(process * num_ranks_of_process + n);
        }
    }
    all_ = std::make_shared<GlooGroup>(local_, std::move(processes));
}

GlooWorld::~GlooWorld() {
    connections_->Close();
}

std::shared_ptr<ProcessGroup> GlooWorld::Join(int rank, const Device& device) {
    connections_->Connect(rank);
    const int local_rank = rank - all_->world_ranks.front();
    CHECK(connections_->ProcessOf(rank) == connections_->process()) << "rank " << rank << " of another process";
    return std::make_shared<GlooProcessGroup>(all_, local_rank, device);
}

void GlooWorld::Fail(const std::string& why) {
    // The ranks of this process that wait for each other first: what those that wait for another process say follows.
    local_->Fail(why);
    connections_->Fail(why);
}

}  // namespace infini_train::comm
