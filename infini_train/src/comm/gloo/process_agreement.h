#pragma once

#include <string>
#include <vector>

#include "infini_train/src/comm/gloo/process_round.h"
#include "infini_train/src/comm/local/contribution.h"

namespace infini_train::comm {

/// What the ranks of a process came for, on which they have agreed: operation, shapes and dtypes, a line each.
std::string Describe(const Contribution& contribution);

/// Whether all processes came for the same.
bool ProcessesAgree(const std::vector<std::string>& descriptions);

/// The Error of a rank when they did not, as CheckAgreement words it; descriptions by place in GroupProcesses::all.
[[noreturn]] void ThrowDisagreement(const GroupProcesses& processes, const std::vector<std::string>& descriptions,
                                    int rank);

}  // namespace infini_train::comm
