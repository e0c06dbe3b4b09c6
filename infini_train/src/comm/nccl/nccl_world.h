#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "infini_train/src/comm/nccl/nccl_watchdog.h"
#include "infini_train/src/comm/nccl_backend.h"
#include "infini_train/src/comm/world.h"

namespace infini_train::comm {

/// All ranks of a run, connected by NCCL, as one process has them.
class NcclWorld : public World {
 public:
    explicit NcclWorld(const NcclWorldOptions& options);
    /// Waits for the other processes to come here as well, unless the run has failed.
    ~NcclWorld() override;

    std::shared_ptr<ProcessGroup> Join(int rank, const Device& device) override;
    void Fail(const std::string& why) override { watchdog_->Fail(why); }

 private:
    NcclWorldOptions options_;
    std::shared_ptr<NcclWatchdog> watchdog_;
    std::mutex mutex_;
    // The end of a device waits for its GPU. On the thread of a rank that throws it would wait for messages that never
    // come, and the others would not hear of the error.
    std::vector<Device> devices_;
};

}  // namespace infini_train::comm
