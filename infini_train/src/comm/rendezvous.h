#pragma once

#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/comm/process_place.h"
#include "infini_train/src/comm/framed_connection.h"

namespace infini_train::comm {

/// All processes of a run, met. A star: process 0 has a connection to each other, the others have one to it.
struct Met {
    std::vector<std::unique_ptr<FramedConnection>> connections = {};  // by process; null: none
    std::vector<std::string> hosts = {};                              // by process
};

/// Returns on all processes when all have come to process 0. More than one process. Throws Error, on all of them that
/// have come, naming the process and its host: one that does not come within timeout_s, comes twice, ends meanwhile, or
/// was started with another number of processes or another fingerprint (lines "name=value"). Who is of no run of ours,
/// or of another, does no harm.
Met Rendezvous(const ProcessPlace& place, double timeout_s, const std::string& fingerprint);

}  // namespace infini_train::comm
