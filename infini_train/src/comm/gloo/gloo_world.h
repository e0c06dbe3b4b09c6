#pragma once

#include <memory>
#include <string>

#include "infini_train/src/comm/gloo/gloo_connections.h"
#include "infini_train/src/comm/gloo/gloo_process_group.h"
#include "infini_train/src/comm/gloo_backend.h"
#include "infini_train/src/comm/world.h"

namespace infini_train::comm {

/// All ranks of a run on CPUs, as one process has them: threads of it hand over, processes use gloo.
class GlooWorld : public World {
 public:
    explicit GlooWorld(const GlooWorldOptions& options);
    ~GlooWorld() override;

    std::shared_ptr<ProcessGroup> Join(int rank, const Device& device) override;
    void Fail(const std::string& why) override;

 private:
    std::shared_ptr<LocalWorld> local_;
    std::shared_ptr<GlooConnections> connections_;
    std::shared_ptr<GlooGroup> all_;
};

}  // namespace infini_train::comm
