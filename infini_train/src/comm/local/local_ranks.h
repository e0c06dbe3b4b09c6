#pragma once

#include <memory>
#include <string>

#include "infini_train/src/comm/local/local_process_group.h"
#include "infini_train/src/comm/local/local_world.h"
#include "infini_train/src/comm/world.h"

namespace infini_train::comm {

/// A run whose ranks are all threads of this process.
class LocalRanks : public World {
 public:
    LocalRanks(int num_ranks, double timeout_s);

    std::shared_ptr<ProcessGroup> Join(int rank, const Device& device) override;
    void Fail(const std::string& why) override { world_->Fail(why); }

 private:
    std::shared_ptr<LocalWorld> world_;
    std::shared_ptr<LocalGroup> all_;
};

}  // namespace infini_train::comm
