#pragma once

#include <string>
#include <vector>

// Processes of a run, in messages.

namespace infini_train::comm {

/// "process 2 (host)"; without a host "process 2".
std::string ProcessName(int index, const std::string& host);

/// "process 2", "process 2 and 3", "process 1, 2 and 3".
std::string ProcessNames(const std::vector<int>& indices);

}  // namespace infini_train::comm
