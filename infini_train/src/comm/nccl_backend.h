#pragma once

#include <functional>
#include <memory>
#include <string>

#include "infini_train/src/comm/world.h"

namespace infini_train::comm {

struct NcclWorldOptions {
    int num_ranks = 0;                                            // of all processes
    std::string unique_id = {};                                   // from make_unique_id of one process
    double timeout_s = 0.0;                                       // of whatever waits for another rank
    std::function<void(const std::string& why)> on_failure = {};  // what the watchdog found
};

/// How comm reaches NCCL. Written before main by comm/nccl/register.cc, never again; all null in a build without NCCL.
struct NcclBackend {
    std::string (*make_unique_id)() = nullptr;
    std::shared_ptr<World> (*make_world)(const NcclWorldOptions& options) = nullptr;
};
inline constinit NcclBackend nccl_backend = {};

}  // namespace infini_train::comm
