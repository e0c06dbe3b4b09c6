#include "infini_train/src/comm/rendezvous_wait.h"

#include <poll.h>

#include <algorithm>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/comm/longest_wait.h"
#include "infini_train/src/comm/process_names.h"

namespace infini_train::comm {

RendezvousClock::time_point After(double seconds) {
    return RendezvousClock::now() + std::chrono::duration_cast<RendezvousClock::duration>(
                                        std::chrono::duration<double>(std::min(seconds, kLongestWaitS)));
}

double SecondsUntil(RendezvousClock::time_point time) {
    return std::chrono::duration<double>(time - RendezvousClock::now()).count();
}

int64_t WholeSecondsSince(RendezvousClock::time_point time) {
    return std::chrono::round<std::chrono::seconds>(RendezvousClock::now() - time).count();
}

std::string Address(const ProcessPlace& place) {
    return StrCat(place.master_address, " port ", place.master_port);
}

void Poll(const std::vector<FramedConnection*>& connections, const Descriptor* listener,
          RendezvousClock::time_point deadline) {
    std::vector<pollfd> fds;
    for (const FramedConnection* connection : connections) {
        const int events = POLLIN | (connection->has_output() ? POLLOUT : 0);
        fds.push_back({.fd = connection->fd(), .events = static_cast<short>(events), .revents = 0});
    }
    if (listener != nullptr) {
        fds.push_back({.fd = listener->fd(), .events = POLLIN, .revents = 0});
    }
    const double wait_s = std::clamp(SecondsUntil(deadline), 0.0, 1.0);
    // Rounded up: a wait of a fraction of a millisecond must not become a loop that burns a core. What a signal
    // interrupts is looked at again by the caller.
    (void)poll(fds.data(), fds.size(), static_cast<int>(wait_s * 1000) + 1);
}

void CheckLauncher(const ProcessPlace& place) {
    if (IsLauncherGone(place)) {
        throw Error(
            {.what = StrCat(ProcessName(place.index, HostName()), " was left behind: ", place.launcher, " has ended"),
             .kind = Error::Kind::kRuntime});
    }
}

}  // namespace infini_train::comm
