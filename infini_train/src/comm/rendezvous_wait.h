#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/include/comm/process_place.h"
#include "infini_train/src/comm/framed_connection.h"
#include "infini_train/src/comm/socket.h"

// How both sides of a rendezvous wait.

namespace infini_train::comm {

using RendezvousClock = std::chrono::steady_clock;

// A hello or a welcome: far more than a fingerprint or a list of hosts has.
inline constexpr size_t kMaxHelloBytes = size_t{1} << 20;
// For a few bytes to go out.
inline constexpr double kFlushS = 2.0;

RendezvousClock::time_point After(double seconds);
double SecondsUntil(RendezvousClock::time_point time);
int64_t WholeSecondsSince(RendezvousClock::time_point time);

/// Where the processes meet: "node1 port 29500"
std::string Address(const ProcessPlace& place);

/// Waits until one of them can be read, or written if it has output; at most until the deadline, and at most a second.
void Poll(const std::vector<FramedConnection*>& connections, const Descriptor* listener,
          RendezvousClock::time_point deadline);

/// Throws Error when the launcher is gone: nobody would end a process that waits for the others.
void CheckLauncher(const ProcessPlace& place);

}  // namespace infini_train::comm
