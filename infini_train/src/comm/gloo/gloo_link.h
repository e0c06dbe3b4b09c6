#pragma once

#include <cstdint>
#include <memory>

#include "infini_train/include/comm/channel.h"
#include "infini_train/include/core/device.h"
#include "infini_train/src/comm/gloo/gloo_connections.h"

namespace infini_train::comm {

// The ends of a link between ranks of two processes. A message is a header, which says what it is, and the bytes of its
// tensor; they have channels of their own. A receive that was posted is one of gloo's for each of the two, under way
// from then on.

/// The ids that the receiver's process gives a link.
struct GlooLinkIds {
    uint32_t header = 0;
    uint32_t payload = 0;
};

struct GlooLinkOptions {
    std::shared_ptr<GlooConnections> connections = nullptr;
    int sender = 0;  // ranks of the world
    int receiver = 0;
    GlooLinkIds ids = {};
};

/// What is sent stays in memory until the other process has taken it, beyond the life of the sender if need be. A
/// thread of the link's own sees to that: gloo cannot be asked whether a send has ended, only waited for.
std::unique_ptr<Sender> MakeGlooSender(const GlooLinkOptions& options);
/// What arrives is on the device. A message whose receive nobody waits for is dropped.
std::unique_ptr<Receiver> MakeGlooReceiver(const GlooLinkOptions& options, const Device& device);

}  // namespace infini_train::comm
