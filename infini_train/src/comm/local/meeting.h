#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "infini_train/src/comm/local/contribution.h"
#include "infini_train/src/comm/local/local_world.h"

namespace infini_train::comm {

/// Where the ranks of a group come together for one collective after the other.
class Meeting {
 public:
    Meeting(std::shared_ptr<LocalWorld> world, std::vector<int> world_ranks);

    /// A rank's stay. While it lasts, all contributions can be read; nobody leaves before all have done their part.
    class Stay {
     public:
        /// Waits until all ranks of the group have come. Throws Error when one does not.
        Stay(Meeting* meeting, int rank, const Contribution& contribution);
        ~Stay();
        Stay(const Stay&) = delete;
        Stay& operator=(const Stay&) = delete;

        /// By rank of the group.
        const std::vector<const Contribution*>& all() const { return meeting_->present_; }

     private:
        Meeting* meeting_;
        int rank_;
    };

 private:
    void Arrive(int rank, const Contribution& contribution);
    void Depart(int rank);
    void WakeOthers(int rank);

    std::shared_ptr<LocalWorld> world_;
    std::vector<int> world_ranks_;

    std::vector<const Contribution*> present_;  // null: not here yet
    int num_present_ = 0;
    int num_done_ = 0;
    int64_t round_ = 0;  // meetings that have ended
};

}  // namespace infini_train::comm
