#pragma once

#include <memory>
#include <string>

#include "infini_train/include/comm/process_group.h"

namespace infini_train::comm {

/// What connects the ranks of a run, as one process has it.
class World {
 public:
    World() = default;
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    virtual ~World() = default;

    /// The group of all ranks as this rank sees it. Called by each rank's own thread; collective over all ranks of all
    /// processes.
    virtual std::shared_ptr<ProcessGroup> Join(int rank, const Device& device) = 0;

    /// A rank of this process or of another has failed: ends whatever waits, on every thread of this process.
    virtual void Fail(const std::string& why) = 0;
};

}  // namespace infini_train::comm
