#pragma once

#include <memory>

#include "infini_train/include/comm/channel.h"
#include "infini_train/include/core/device.h"
#include "infini_train/src/comm/nccl/nccl_communicator.h"

namespace infini_train::comm {

// The ends of a link between two ranks: its own communicator, in which the sender is 0 and the receiver 1, and its own
// stream. The host waits for nobody: events order the transfers and the rank's computation. Messages come without their
// tags and sizes, in order; that both ends agree is what the plans' checker has proved.

/// Thread blocks of a link's kernels at most. A receive that was posted early holds them until its message comes, so
/// with sends and receives in both directions 8 of the GPU's SMs: few beside the 132 of an H200, and two blocks still
/// carry a message of some MiB in a fraction of the milliseconds that a stage computes.
inline constexpr int kLinkBlocks = 2;

/// Both wait for the other end to be made: NCCL connects two ranks when they first send and receive. The communicator
/// has a stream.
std::unique_ptr<Sender> MakeNcclSender(std::shared_ptr<NcclCommunicator> communicator, const Device& device);
std::unique_ptr<Receiver> MakeNcclReceiver(std::shared_ptr<NcclCommunicator> communicator, const Device& device);

/// A link from a rank to itself hands the tensors over.
struct SelfLinkEnds {
    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
};
SelfLinkEnds MakeSelfLink(int world_rank);

}  // namespace infini_train::comm
