#pragma once

#include <string>

#include "nccl.h"

namespace infini_train::comm {

/// What NCCL says of a result, on one line, with its last message where it has one.
std::string NcclErrorText(ncclResult_t result);

/// Throws the Error of a call that failed. ncclInProgress is no failure.
void CheckNccl(const char* call, ncclResult_t result);

}  // namespace infini_train::comm

/// For calls that wait for nobody; what a communicator does goes through NcclCommunicator.
#define INFINI_NCCL_CHECK(call) ::infini_train::comm::CheckNccl(#call, (call))
