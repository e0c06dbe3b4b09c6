#pragma once

#include <string>

#include "infini_train/include/comm/process_place.h"
#include "infini_train/src/comm/rendezvous.h"

namespace infini_train::comm {

/// Process 0's side of a rendezvous: listens until all have come, and compares what they say of themselves. Throws
/// Error as Rendezvous does, after it has told those who came.
Met ReceiveProcesses(const ProcessPlace& place, double timeout_s, const std::string& fingerprint);

}  // namespace infini_train::comm
